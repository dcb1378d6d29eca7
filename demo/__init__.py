"""What ``make demo`` shows: real segments judged, damaged copies refused, and the time it takes
with aiokafka.
"""
