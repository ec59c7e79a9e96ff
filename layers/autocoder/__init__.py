"""Autocoder: a specification on a queue becomes a tested project in S3."""
