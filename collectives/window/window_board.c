/* A window's board (board.h), for the engine. */
#include "collectives/window/window_internal.h"

#include <stdio.h>

/* The first failure stays. */
static void keep(struct window *w, tutti_status status, const char *reason)
{
	if (w->failed != TUTTI_OK)
		return;
	w->failed = status;
	snprintf(w->error, sizeof w->error, "%s", reason);
}

void window_fail(struct window *w, tutti_status status, const char *reason)
{
	board_tell(&w->board, status, reason);
	keep(w, status, reason);
}

void window_stick(struct window *w, tutti_status status)
{
	if (status != TUTTI_OK)
		keep(w, status, last_error());
}

void window_leave(struct window *w)
{
	atomic_store_explicit(&window_recorder(w)->has_left, 1, memory_order_release);
}

struct recorder *window_recorder(const struct window *w)
{
	return &w->board.places[w->rank].recorder;
}

int window_dead(const struct window *w)
{
	return w->board.dead - 1;
}

bool window_is_stopped(const struct window *w)
{
	return w->board.is_stopped;
}

void window_watch(struct window *w, uint32_t silence_ms)
{
	w->board.stopped.silence_ms = silence_ms;
}

bool window_has_ended(const struct window *w, int rank)
{
	return board_has_ended(&w->board, rank);
}

const char *window_missing(const struct window *w, uint64_t sequence, char *text, size_t text_bytes)
{
	return board_missing(&w->board, sequence, text, text_bytes);
}

tutti_status window_look(struct window *w, uint64_t sequence, bool is_bad)
{
	return board_check_call(&w->board, sequence, is_bad);
}
