"""One file per output format: a Section in, facts and losses out."""
