"""Two looks at hosts to what changed between them, in words."""
