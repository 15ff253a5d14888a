/* The list, its limits and its deadlines; and one count for the whole process. */
#include "core/admission.h"

#include "core/clock.h"

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/resource.h>

static atomic_int unproved_of_all;

static int admission_most_of_all(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
	    limit.rlim_cur / ADMISSION_SHARE > ADMISSION_MOST)
		return ADMISSION_MOST;
	return (int)(limit.rlim_cur / ADMISSION_SHARE);
}

void admission_init(struct admission *a, int most, int time_ms)
{
	assert(most >= ADMISSION_LEAST);
	*a = (struct admission){.end = &a->oldest, .most = most, .time_ms = time_ms};
}

/* Two listeners that ask at the same time may take one place too many: it is no exact bound. */
bool admission_has_room(const struct admission *a)
{
	return a->unproved < a->most && (a->unproved < ADMISSION_LEAST ||
					 atomic_load(&unproved_of_all) < admission_most_of_all());
}

void admission_add(struct admission *a, struct admission_entry *e)
{
	assert(!e->link);
	e->deadline_ns = deadline_after_ms(a->time_ms);
	e->has_proved = false;
	e->next = NULL;
	e->link = a->end;
	*a->end = e;
	a->end = &e->next;
	a->count++;
	a->unproved++;
	atomic_fetch_add(&unproved_of_all, 1);
}

static void admission_give_place_back(struct admission *a, struct admission_entry *e)
{
	int before;

	if (e->has_proved)
		return;
	a->unproved--;
	before = atomic_fetch_sub(&unproved_of_all, 1);
	assert(before > 0);
	(void)before;
}

void admission_proved(struct admission *a, struct admission_entry *e)
{
	assert(e->link);
	admission_give_place_back(a, e);
	e->has_proved = true;
	e->deadline_ns = deadline_after_ms(a->time_ms);
}

void admission_remove(struct admission *a, struct admission_entry *e)
{
	if (!e->link)
		return;
	admission_give_place_back(a, e);
	a->count--;
	*e->link = e->next;
	if (e->next)
		e->next->link = e->link;
	else
		a->end = e->link;
	e->link = NULL;
}

struct admission_entry *admission_oldest(const struct admission *a, bool goes_last)
{
	struct admission_entry *e = a->oldest;

	while (e && (e->has_proved || e->goes_last != goes_last))
		e = e->next;
	return e;
}

struct admission_entry *admission_late(const struct admission *a, uint64_t now_ns)
{
	struct admission_entry *e = a->oldest;

	while (e && now_ns < e->deadline_ns)
		e = e->next;
	return e;
}

uint64_t admission_due_ns(const struct admission *a)
{
	uint64_t due_ns = DEADLINE_NONE;

	for (const struct admission_entry *e = a->oldest; e; e = e->next)
		if (e->deadline_ns < due_ns)
			due_ns = e->deadline_ns;
	return due_ns;
}
