"""The steps that become a calibration: thinned, and with what neighbours share."""

from chunkscope.verification.calibrate import COLUMNS, bursts_for, timed_steps


def test_very_many_steps_are_thinned():
    many = {name: list(range(1, 5_001)) for name in COLUMNS}
    rows = [row[0] for row in timed_steps([many, many])]
    assert 2_000 < len(rows) <= 3_000
    assert rows[0] == 1
    assert rows[-1] > 4_990


def test_bursts_fit_into_any_context():
    for longest in (2, 100, 131_072):
        assert all(p >= 1 and o >= 1 and p + o <= longest for _, p, o in bursts_for(longest))


def test_context_that_neighbours_share_counts_as_much_as_it_takes():
    repeat = {name: [1, 2] for name in COLUMNS} | {
        "decode_context_tokens": [1_000, 2_000],
        "duration_s": [0.01, 0.02],
    }
    rows = timed_steps([repeat], context_weight=0.62)
    assert [row[COLUMNS.index("decode_context_tokens")] for row in rows] == [620, 1_240]
    assert [row[COLUMNS.index("duration_s")] for row in rows] == [0.01, 0.02]
