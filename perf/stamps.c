/* Takes the times of calls, and judges them. */
#include "stamps.h"

#include "measure.h"

#include "core/clock.h"
#include "core/status.h"

#include <string.h>

#define CLOCK_LOOKS 1001
#define PIECE       65536 /* latencies that are combined at once */

/* Ten at a time: it counts in whole nanoseconds. */
double stamps_clock_ns(void)
{
	double took[CLOCK_LOOKS];

	for (int i = 0; i < CLOCK_LOOKS; i++) {
		uint64_t start = clock_now_ns(), end = start;

		for (int k = 0; k < 10; k++)
			end = clock_now_ns();
		took[i] = (double)(end - start) / 10;
	}
	return measure_median(took, CLOCK_LOOKS);
}

double stamps_seconds(const struct stamps *s, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += s->leave[i] - s->enter[i];
	return (double)sum * 1e-9;
}

tutti_status stamps_early(const struct stamps *s, size_t n, tutti_comm *comm, uint64_t *early)
{
	uint64_t last[STAMPS_MAX];

	memcpy(last, s->enter, n * sizeof *last);
	TRY(tutti_all_reduce(last, last, n, TUTTI_U64, TUTTI_MAX, comm, NULL));
	*early = 0;
	for (size_t i = 0; i < n; i++)
		*early += s->leave[i] < last[i];
	return TUTTI_OK;
}

/* glibc's qsort sorts into a copy. */
size_t latencies_bytes(size_t room)
{
	return 2 * room * sizeof(double);
}

bool latencies_init(struct latencies *l, size_t room)
{
	*l = (struct latencies){.room = room, .ns = calloc(room, sizeof *l->ns)};
	return l->ns != NULL;
}

void latencies_finish(struct latencies *l)
{
	free(l->ns);
	l->ns = NULL;
}

void latencies_add(struct latencies *l, const struct stamps *s, size_t n)
{
	for (size_t i = 0; i < n && l->count < l->room; i++)
		l->ns[l->count++] = (double)(s->leave[i] - s->enter[i]);
}

/* The least that so many of a hundred calls do not pass. */
static double stamps_microseconds_at(const struct latencies *l, size_t percent)
{
	size_t place = (l->count * percent + 99) / 100;

	return l->ns[place > 0 ? place - 1 : 0] * 1e-3;
}

tutti_status latencies_combine(struct latencies *l, tutti_comm *comm, struct percentiles *p)
{
	for (size_t done = 0, n; done < l->count; done += n) {
		double *piece = l->ns + done;

		n = l->count - done < PIECE ? l->count - done : PIECE;
		TRY(tutti_all_reduce(piece, piece, n, TUTTI_F64, TUTTI_MAX, comm, NULL));
	}
	qsort(l->ns, l->count, sizeof *l->ns, measure_compare);
	p->min = stamps_microseconds_at(l, 0);
	p->p50 = stamps_microseconds_at(l, 50);
	p->p99 = stamps_microseconds_at(l, 99);
	p->max = stamps_microseconds_at(l, 100);
	return TUTTI_OK;
}
