/* The window of one rank, once the segment is mapped. */
#include "collectives/window/window_internal.h"

#include "collectives/window/doorbell.h"
#include "collectives/window/run_progress.h"

#include <stdlib.h>
#include <unistd.h>

static bool window_create_allocate(struct window *w)
{
	size_t n = (size_t)w->size;
	bool is_whole = true;

	for (int word = 0; word < WORDS; word++) {
		w->seen[word] = calloc(n, sizeof *w->seen[word]);
		is_whole = is_whole && w->seen[word];
	}
	w->scratch.src = calloc(n, sizeof *w->scratch.src);
	w->scratch.dst = calloc(n, sizeof *w->scratch.dst);
	w->scratch.peer_send = calloc(n, sizeof *w->scratch.peer_send);
	w->scratch.peer_recv = calloc(n, sizeof *w->scratch.peer_recv);
	w->scratch.deals = calloc(n, sizeof *w->scratch.deals);
	return is_whole && w->scratch.src && w->scratch.dst && w->scratch.peer_send &&
	       w->scratch.peer_recv && w->scratch.deals;
}

tutti_status window_create(struct window **window, struct segment *segment,
			   const struct window_config *config)
{
	struct window *w = calloc(1, sizeof *w);

	if (!w)
		return fail(TUTTI_ERR_MEMORY, "Rank %d has no memory for a window of %d ranks.",
			    config->rank, config->size);
	w->memory.mail = -1;
	atomic_init(&w->doorbell, -1);
	w->rank = config->rank;
	w->size = config->size;
	w->policy = config->policy;
	memcpy(w->memory.comm_id, config->comm_id, sizeof w->memory.comm_id);
	w->number = w->others = w->met = WINDOW_FIRST_NUMBER;
	w->at = segment_places(segment);
	w->area = w->at.areas + w->rank;
	same_cpu_begin(w, config->spreads);
	w->geometry = segment->geometry;
	w->board = (struct board){.rank = config->rank,
				  .size = config->size,
				  .places = w->at.board,
				  .failures = &w->at.head->failures,
				  .pid_fds = segment->pid_fds,
				  .wake_all = doorbell_wake_all,
				  .arg = w};
	board_begin(&w->board);
	if (!window_create_allocate(w)) {
		window_destroy(w);
		return fail(TUTTI_ERR_MEMORY, "Rank %d has no memory for a window of %d ranks.",
			    config->rank, config->size);
	}
	read_say_process(w);
	w->segment = segment;
	doorbell_open(w);
	*window = w;
	return TUTTI_OK;
}

void window_destroy(struct window *w)
{
	if (!w)
		return;
	if (w->memory.mail >= 0)
		close(w->memory.mail);
	if (atomic_load(&w->doorbell) >= 0)
		close(atomic_load(&w->doorbell));
	for (int word = 0; word < WORDS; word++)
		free(w->seen[word]);
	if (w->segment)
		board_leave(&w->board);
	segment_drop(w->segment);
	free(w->scratch.src);
	free(w->scratch.dst);
	free(w->scratch.peer_send);
	free(w->scratch.deals);
	free(w->scratch.peer_recv);
	free(w);
}
