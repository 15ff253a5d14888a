/* The agenda: an unordered array with places (random choice) and a binary heap with places (time).
 */
#include "tests/sim/agenda.h"

#include <assert.h>
#include <stdlib.h>

bool agenda_reserve(struct agenda *agenda, size_t n)
{
	size_t capacity = agenda->capacity ? agenda->capacity : 64;

	if (n <= agenda->capacity)
		return true;
	while (capacity < n)
		capacity *= 2;
	struct agenda_entry **ready = realloc(agenda->ready, capacity * sizeof(*ready));
	if (!ready)
		return false;
	agenda->ready = ready;
	struct agenda_entry **due = realloc(agenda->due, capacity * sizeof(*due));
	if (!due)
		return false;
	agenda->due = due;
	agenda->capacity = capacity;
	return true;
}

void agenda_finish(struct agenda *agenda)
{
	free(agenda->ready);
	free(agenda->due);
}

void agenda_set_ready(struct agenda *agenda, struct agenda_entry *entry, bool is_ready)
{
	if (is_ready == (entry->ready_at != 0))
		return;
	if (is_ready) {
		assert(agenda->ready_count < agenda->capacity);
		agenda->ready[agenda->ready_count++] = entry;
		entry->ready_at = agenda->ready_count;
		return;
	}
	struct agenda_entry *last = agenda->ready[--agenda->ready_count];
	agenda->ready[entry->ready_at - 1] = last;
	last->ready_at = entry->ready_at;
	entry->ready_at = 0;
}

static bool is_before(const struct agenda_entry *a, const struct agenda_entry *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void put(struct agenda *agenda, struct agenda_entry *entry, size_t place)
{
	agenda->due[place - 1] = entry;
	entry->due_at = place;
}

static void sift_up(struct agenda *agenda, struct agenda_entry *entry)
{
	size_t place = entry->due_at;

	while (place > 1 && is_before(entry, agenda->due[place / 2 - 1])) {
		put(agenda, agenda->due[place / 2 - 1], place);
		place /= 2;
	}
	put(agenda, entry, place);
}

static void sift_down(struct agenda *agenda, struct agenda_entry *entry)
{
	size_t place = entry->due_at;

	for (size_t child; (child = 2 * place) <= agenda->due_count; place = child) {
		if (child < agenda->due_count &&
		    is_before(agenda->due[child], agenda->due[child - 1]))
			child++;
		if (!is_before(agenda->due[child - 1], entry))
			break;
		put(agenda, agenda->due[child - 1], place);
	}
	put(agenda, entry, place);
}

void agenda_set_due(struct agenda *agenda, struct agenda_entry *entry, uint64_t due_ns)
{
	assert(!entry->due_at && agenda->due_count < agenda->capacity);
	entry->due_ns = due_ns;
	entry->order = agenda->next_order++;
	put(agenda, entry, ++agenda->due_count);
	sift_up(agenda, entry);
}

void agenda_set_not_due(struct agenda *agenda, struct agenda_entry *entry)
{
	if (!entry->due_at)
		return;
	struct agenda_entry *last = agenda->due[--agenda->due_count];
	if (last != entry) {
		put(agenda, last, entry->due_at);
		sift_up(agenda, last);
		sift_down(agenda, last);
	}
	entry->due_at = 0;
}
