"""The API keys that native code asks for. tests/contract/test_layout.py compares them with ApiKey
in apis.py.
"""

cdef enum:
    PRODUCE = 0
    FETCH = 1
    METADATA = 3
    FIND_COORDINATOR = 10
    API_VERSIONS = 18
    DESCRIBE_CLUSTER = 60
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
