/* What the bench needs in C inside a Python process: the probe. */
#include "probe.h"

double probe(void) { return probe_ns(); }
