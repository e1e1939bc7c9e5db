"""Update methods: gradients in, next parameters out. A mode is an object; nobody else asks which mode it is."""
