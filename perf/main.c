/* A benchmark program: the driver's main, and the name of what it measures. */
#include "collective.h"

const char *const perf_collective = COLLECTIVE;
