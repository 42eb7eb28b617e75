"""What a model needs and what a GPU gives, in bytes and seconds. Nothing of data comes in."""
