"""Update methods: local, collective, pserver. Each is an object; no other code asks which one it has."""
