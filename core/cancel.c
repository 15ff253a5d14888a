/* The hook: see cancel.h. */
#include "core/cancel.h"

#include "core/clock.h"

#include <stddef.h>

#define ASK_MS 10

static _Thread_local bool (*over)(void *arg);
static _Thread_local void *over_arg;

void cancel_begin(bool (*is_over)(void *arg), void *arg)
{
	over = is_over;
	over_arg = arg;
}

void cancel_end(void)
{
	over = NULL;
}

bool cancel_requested(void)
{
	return over && over(over_arg);
}

uint64_t cancel_deadline(uint64_t deadline_ns)
{
	return cancel_requested() ? 0 : deadline_ns;
}

int cancel_poll_ms(uint64_t deadline_ns, int max_ms)
{
	return deadline_poll_ms(cancel_deadline(deadline_ns),
				over && max_ms > ASK_MS ? ASK_MS : max_ms);
}
