/* What can happen next in a simulation: a set to choose from at random, and a queue by time.
 *
 * Everything is O(1) or O(log n). An entry is embedded in what it stands for, and may be in both.
 */
#ifndef TESTS_SIM_AGENDA_H
#define TESTS_SIM_AGENDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agenda_entry {
	uint64_t due_ns, order; /* order: the entry that came first goes first              */
	size_t ready_at, due_at;        /* place + 1; 0: not in                                 */
};

struct agenda {
	struct agenda_entry **ready, **due;     /* due is a binary heap                         */
	size_t ready_count, due_count, capacity;
	uint64_t next_order;
};

/* Room for n entries: entering one never fails afterwards. False: out of memory. */
bool agenda_reserve(struct agenda *agenda, size_t n);
void agenda_finish(struct agenda *agenda);
void agenda_set_ready(struct agenda *agenda, struct agenda_entry *entry, bool is_ready);
void agenda_set_due(struct agenda *agenda, struct agenda_entry *entry, uint64_t due_ns);
void agenda_set_not_due(struct agenda *agenda, struct agenda_entry *entry);

#endif
