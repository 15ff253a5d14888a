/* The help of tuttirun, and errors of its command line. */
#ifndef LAUNCH_HELP_H
#define LAUNCH_HELP_H

extern const char help_usage[], help_text[];

/* Says what is wrong, and the usage. Returns the exit code. */
__attribute__((format(printf, 1, 2))) int help_wrong(const char *format, ...);

#endif
