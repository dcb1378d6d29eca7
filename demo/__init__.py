"""Run ``make demo``: check real segments, refuse damaged copies, compare with aiokafka."""
