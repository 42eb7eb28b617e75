"""What tests/make_sample_data.py writes: a module per dataset, each with a function `rows`."""
