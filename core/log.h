/* Logging: whole lines on stderr. By default only notices: for what a rank waits long, and
 * errors that no call can return. TUTTI_LOG=off, info or debug says less or more. */
#ifndef CORE_LOG_H
#define CORE_LOG_H

#include "core/words/export.h"

enum log_level { LOG_OFF, LOG_NOTICE, LOG_INFO, LOG_DEBUG };

/* Read and set with log_at and log_set_level only. */
extern enum log_level log_level TUTTI_PRIVATE(log_level);

/* At every init, from the environment; ranks may be threads, hence atomic. */
static inline void log_set_level(enum log_level level)
{
	__atomic_store_n(&log_level, level, __ATOMIC_RELAXED);
}

static inline _Bool log_at(enum log_level level)
{
	return __builtin_expect(__atomic_load_n(&log_level, __ATOMIC_RELAXED) >= level, 0) != 0;
}

void log_line(const char *format, ...) TUTTI_PRIVATE(log_line)
	__attribute__((format(printf, 1, 2), cold));
void log_set_rank(int rank);           /* this thread's lines say "rank N" from now on; not if -1 */

#define log_if(level, line, ...)                                                                   \
	do {                                                                                       \
		if (log_at(level))                                                                 \
			line(__VA_ARGS__);                                                         \
	} while (0)
#define log_notice(...) log_if(LOG_NOTICE, log_line, __VA_ARGS__)
#define log_info(...)  log_if(LOG_INFO, log_line, __VA_ARGS__)
#define log_debug(...) log_if(LOG_DEBUG, log_line, __VA_ARGS__)

/* For lines that connections without a proof can make us write as often as they like. It writes a
 * few at once, then one a second, which says how many were left out. All threads share them. */
#define log_seldom(...) log_if(LOG_INFO, log_seldom_line, __VA_ARGS__)

#define LOG_AT_ONCE 8
void log_seldom_line(const char *format, ...) __attribute__((format(printf, 1, 2), cold));

#endif
