"""What a model needs and what a GPU gives, in bytes and seconds, whatever the data."""
