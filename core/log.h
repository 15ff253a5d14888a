/* Logging: silent by default; TUTTI_LOG=info or debug writes whole lines to stderr. */
#ifndef CORE_LOG_H
#define CORE_LOG_H

enum log_level { LOG_OFF, LOG_INFO, LOG_DEBUG };

extern enum log_level log_level;       /* set once, at init, from the environment */

void log_line(const char *format, ...) __attribute__((format(printf, 1, 2), cold));
void log_set_rank(int rank);           /* this thread's lines say "rank N" from now on; -1: none */

#define log_info(...)                                                                              \
	do {                                                                                       \
		if (__builtin_expect(log_level >= LOG_INFO, 0))                                    \
			log_line(__VA_ARGS__);                                                     \
	} while (0)
#define log_debug(...)                                                                             \
	do {                                                                                       \
		if (__builtin_expect(log_level >= LOG_DEBUG, 0))                                   \
			log_line(__VA_ARGS__);                                                     \
	} while (0)

#endif
