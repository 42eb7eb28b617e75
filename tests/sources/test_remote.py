"""Files on other machines: against a real S3 server on this one."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.helpers import analyze
from tests.large_input import write_large_input
from tests.remote_servers import s3_environment, s3_server, upload, web_server

# What libraries for S3 leave open or warn of is not ours.
pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]
CSV = b"prompt\nhello there\nhow are you\n"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder, the same in s3://evals, and the address of the server."""
    folder = write_large_input(tmp_path_factory.mktemp("remote") / "evals")
    (folder / "more" / ".hidden").mkdir(parents=True)
    (folder / "more" / "few.csv").write_bytes(CSV)
    (folder / "more" / "README.md").write_text("about it")
    (folder / "more" / "model.bin").write_bytes(b"\0" * 100)
    with zipfile.ZipFile(folder / "more" / "pack.zip", "w") as packed:
        packed.writestr("few.csv", CSV)
    (folder / "more" / ".hidden" / "x.jsonl").write_text("{}")
    with s3_server() as address:
        upload(folder, "evals")
        yield folder, address


def test_a_bucket_is_read_as_a_folder_is(
    bucket: tuple[Path, str], tmp_path: Path
) -> None:
    folder, _ = bucket
    near = analyze(folder.parent, "evals")
    far = analyze(tmp_path, "s3://evals/")
    assert far.code == near.code == 3  # bad rows, and a file that is cut
    for here, there in zip(
        near.profile["datasets"], far.profile["datasets"], strict=True
    ):
        assert there["path"] == f"s3://{here['path']}"
        assert bool(there["failure"]) == bool(here["failure"])
        others = {
            "path",
            "failure",
            "digest",
        }  # nothing is read twice, so there is no digest
        assert {n: v for n, v in there.items() if n not in others} == {
            n: v for n, v in here.items() if n not in others
        }
    for skipped in ("README.md", "model.bin"):
        assert skipped in far.err


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "AWS_ACCESS_KEY_ID"),
        (
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"},
            "AWS_ENDPOINT_URL",
        ),
    ],
)
def test_without_credentials_or_a_network_the_hint_names_what_to_set(
    bucket: tuple[Path, str], tmp_path: Path, environment: dict[str, str], named: str
) -> None:
    with s3_environment(bucket[1], **environment):
        run = analyze(tmp_path, "s3://evals/few.csv")
    assert (run.code, "s3://evals" in run.err, named in run.err) == (4, True, True), (
        run.err
    )


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [(403, "SignatureDoesNotMatch", 4), (500, "InternalError", 4)],
)
def test_a_server_that_refuses_or_fails_is_a_sentence(
    tmp_path, status, code, exit_code
) -> None:
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    answers = {path: (status, body, len(body)) for path in ("/evals", "/evals/few.csv")}
    with (
        web_server(answers) as address,
        s3_environment(address, AWS_MAX_ATTEMPTS="1"),
    ):
        run = analyze(tmp_path, "s3://evals/few.csv")
    assert (run.code, "s3://evals/few.csv" in run.err) == (exit_code, True), run.err
