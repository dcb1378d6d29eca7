"""What the tests of several rooms share. Written in plain Python, on nothing of batchval's."""
