/* The board as a kind of control. It needs no thread: a look is a few loads. */
#include "collectives/control/board.h"
#include "collectives/control/control_internal.h"

#include <stdlib.h>

struct control_board {
	struct control base;
	struct board *board;
	bool is_delivered; /* on_failure was called */
};

static struct board *board_of(struct control *control)
{
	return ((struct control_board *)control)->board;
}

static void control_board_report(struct control_board *c)
{
	c->is_delivered = true;
	c->base.on_failure(c->base.arg, board_decided(c->board));
}

static void control_board_check(struct control *control, const struct control_wait *wait)
{
	struct control_board *c = (struct control_board *)control;

	if (c->is_delivered ||
	    board_check_call(c->board, wait->sequence, wait->is_urgent) == TUTTI_OK)
		return;
	control_board_report(c);
}

static bool control_board_has_news(const struct control *control)
{
	return board_has_failed(((const struct control_board *)control)->board);
}

static void control_board_look(struct control *control)
{
	struct control_board *c = (struct control_board *)control;

	if (!c->is_delivered && board_failure(c->board) != TUTTI_OK)
		control_board_report(c);
}

/* Memory answers at once. */
static bool control_board_ask(struct control *control, uint64_t sequence, uint64_t deadline_ns)
{
	struct control_board *c = (struct control_board *)control;
	(void)sequence;

	if (!deadline_ns || c->is_delivered || board_check_late(c->board) == TUTTI_OK)
		return false;
	control_board_report(c);
	return true;
}

static const char *control_board_missing(struct control *control, uint64_t sequence, char *text,
					 size_t text_bytes)
{
	return board_missing(board_of(control), sequence, text, text_bytes);
}

static const struct failure *control_board_found(struct control *control)
{
	return board_decided(board_of(control));
}

static void control_board_tell(struct control *control, const struct failure *failure, int pending)
{
	(void)pending; /* what this rank has posted lies in memory, and its calls are on the board
			*/
	board_tell(board_of(control), failure);
}

static void control_board_leave(struct control *control)
{
	board_leave(board_of(control));
}

static void control_board_destroy(struct control *control)
{
	control_board_leave(control);
	free(control);
}

static void control_board_tell_first(void *control, int first)
{
	board_tell_first(board_of(control), first);
}

static void hear_first(struct control *control, int rank)
{
	board_hear_first(board_of(control), rank);
}

static const struct control_kind board = {.check = control_board_check,
					  .ask = control_board_ask,
					  .missing = control_board_missing,
					  .found = control_board_found,
					  .has_news = control_board_has_news,
					  .look = control_board_look,
					  .fail = control_board_tell,
					  .leave = control_board_leave,
					  .destroy = control_board_destroy,
					  .tell_first = control_board_tell_first,
					  .hear_first = hear_first};

tutti_status control_share(struct control **control, struct board *shared,
			   const struct control_config *config)
{
	struct control_board *c = calloc(1, sizeof *c);

	if (!c)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for its board", shared->rank);
	c->base.kind = &board;
	c->board = shared;
	c->base.job = shared->job = config->job;
	shared->stopped.silence_ms = config->silence_ms;
	*control = &c->base;
	return TUTTI_OK;
}
