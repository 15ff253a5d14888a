/* Two streams of each rank into two sinks, none of which may hold up the others. */
#include "relay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { AT_OUT, AT_ERR, AT_STREAMS };

static int relay_streams(const struct ranks *r)
{
	return 2 * r->n;
}

static struct stream *relay_stream_of(struct ranks *r, int index)
{
	struct rank *rank = &r->rank[index / 2];

	return index % 2 ? &rank->err : &rank->out;
}

int relay_polls(const struct ranks *r)
{
	return AT_STREAMS + relay_streams(r);
}

void relay_interests(struct ranks *r, struct pollfd *polls)
{
	polls[AT_OUT] = (struct pollfd){.fd = r->out.bytes ? r->out.fd : -1, .events = POLLOUT};
	polls[AT_ERR] = (struct pollfd){.fd = r->err.bytes ? r->err.fd : -1, .events = POLLOUT};
	for (int i = 0; i < relay_streams(r); i++) {
		struct stream *s = relay_stream_of(r, i);

		polls[AT_STREAMS + i] = (struct pollfd){
			.fd = stream_has_room(s) ? s->fd : -1,
			.events = POLLIN,
		};
	}
}

bool relay_writes(const struct pollfd *polls)
{
	return polls[AT_OUT].revents || polls[AT_ERR].revents;
}

/* No process reads this sink any more: its ranks notice that as they would without a launcher. */
static void relay_break_streams(struct ranks *r, const struct sink *sink)
{
	for (int i = 0; i < relay_streams(r); i++) {
		struct stream *s = relay_stream_of(r, i);

		if (s->sink == sink) {
			s->bytes = 0;
			stream_close(s);
		}
	}
}

static void relay_give_up(struct ranks *r, struct sink *sink)
{
	char line[160];

	sink->is_given_up = true;
	relay_break_streams(r, sink);
	if (sink == &r->err || sink->error == EPIPE)
		return;
	snprintf(line, sizeof line, "tuttirun: stdout cannot be written: %s\n",
		 strerror(sink->error));
	sink_say(&r->err, line);
}

static void relay_say_lost_log(struct ranks *r, int index)
{
	struct rank *rank = &r->rank[index / 2];
	char line[120];

	if (!rank->log.error)
		return;
	snprintf(line, sizeof line, "tuttirun: the log of rank %d ends here: %s\n", rank->number,
		 strerror(rank->log.error));
	rank->log.error = 0;
	sink_say(&r->err, line);
}

void relay_move(struct ranks *r, const struct pollfd *polls, int turn)
{
	for (int i = AT_OUT; i <= AT_ERR; i++) {
		struct sink *sink = i == AT_OUT ? &r->out : &r->err;

		if (polls[i].revents)
			sink_write(sink);
		if (sink->error && !sink->is_given_up)
			relay_give_up(r, sink);
		sink_end_late_line(sink);
	}
	/* Another one begins each time, so that a talkative rank does not keep the others out. */
	for (int k = 0; k < relay_streams(r); k++) {
		int i = (k + turn) % relay_streams(r);

		stream_pass(relay_stream_of(r, i));
		if (polls[AT_STREAMS + i].revents)
			stream_pump(relay_stream_of(r, i));
		relay_say_lost_log(r, i);
	}
}

uint64_t relay_due_ms(const struct ranks *r)
{
	uint64_t out = sink_line_due_ms(&r->out), err = sink_line_due_ms(&r->err);

	return out < err ? out : err;
}

void relay_leave(struct ranks *r, bool with_output)
{
	for (int i = 0; i < relay_streams(r); i++) {
		struct stream *s = relay_stream_of(r, i);

		if (s->fd >= 0 && (s->bytes == 0 || with_output)) {
			stream_pump(s);
			stream_close(s);
		}
	}
}

bool relay_is_empty(struct ranks *r)
{
	for (int i = 0; i < relay_streams(r); i++)
		if (relay_stream_of(r, i)->fd >= 0 || relay_stream_of(r, i)->bytes > 0)
			return false;
	return r->out.bytes == 0 && r->err.bytes == 0;
}
