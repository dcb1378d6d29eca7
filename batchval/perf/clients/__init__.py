"""The clients that can be measured."""
