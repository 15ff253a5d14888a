/* A benchmark program. COLLECTIVE is the name of what it measures. */
#include "perf.h"

int main(int argc, char **argv)
{
	return perf_main(argc, argv, COLLECTIVE);
}
