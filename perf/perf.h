/* The driver of all benchmark programs. */
#ifndef PERF_PERF_H
#define PERF_PERF_H

/* A benchmark's main. Returns the exit code: 0, 1 wrong values, 2 a bad command line, 3 a call or
 * the output failed; 77: the library is not here. */
int perf_main(int argc, char **argv, const char *collective);

#endif
