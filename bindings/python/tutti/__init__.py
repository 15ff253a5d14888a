"""Tutti: collective communication."""
