"""What is said about chunks, capacity, refused prompts, forecasts and samples, in every format."""

from collections.abc import Iterator

from chunkscope.lengths.profile import Profile


def samples(profile: Profile) -> Iterator[str]:
    """A sentence for each dataset of which only a sample was counted."""
    for dataset in profile.datasets:
        if (part := dataset.sample) is not None:
            of = f"{part.rows:,} of {part.out_of:,} rows of {dataset.name}"
            yield f"Sampled: {of} (seed {part.seed})"
