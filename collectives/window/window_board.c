/* A window's board (control/board.h), and what becomes of the window when something fails. */
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
	board_tell(&w->board,
		   &(struct failure){.status = status, .rank = FAILURE_NO_RANK, .message = reason});
	keep(w, status, reason);
}

void window_stick(struct window *w, tutti_status status)
{
	if (status != TUTTI_OK)
		keep(w, status, last_error());
}

struct board *window_board(struct window *w)
{
	return &w->board;
}
