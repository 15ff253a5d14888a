/* Would break: the control ring, by messages of its neighbours that cannot be, or that should not
 * have come now. What it makes of them must be a failure that makes sense, or nothing; and no
 * message goes round for ever: those that it sends have an origin, who takes them from the ring. */
#include "foreign.h"
#include "fuzz.h"

#include "collectives/control/control_internal.h"

#include <string.h>

#define ACTIONS_MAX 200

struct ring {
	struct foreign foreign;
	struct control *control;
	struct recorder *recorder;
	struct control_message message;
	struct foreign_conn *from; /* message is said by it, once                   */
	uint32_t fingerprint;
	int size;
	bool has_failed;
};

static bool says(void *arg, struct foreign_conn *conn, void *bytes, size_t n)
{
	struct ring *r = arg;

	if (r->from != conn)
		return false;
	MUST(n == sizeof r->message);
	memcpy(bytes, &r->message, n);
	r->from = NULL;
	return true;
}

static void hears(void *arg, struct foreign_conn *conn, const void *bytes, size_t n)
{
	const struct ring *r = arg;
	const struct control_message *m = bytes;

	(void)conn;
	MUST(n == sizeof *m && m->origin >= 0 && m->origin < r->size);
}

static void on_failure(void *arg, const struct failure *failure)
{
	struct ring *r = arg;

	MUST(failure->status > TUTTI_IN_PROGRESS && failure->status <= TUTTI_ERR_INTERNAL);
	MUST(failure->rank >= -1 && failure->rank < r->size);
	MUST(strlen(failure->message) < ERROR_BYTES);
	MUST(!r->has_failed);
	r->has_failed = true;
}

/* This rank makes a call. */
static void make_call(struct ring *r, struct input *in)
{
	uint64_t sequence = recorder_issued(r->recorder);
	struct call_args args = {.collective = input_byte(in) % COLL_COUNT,
				 .dtype = input_byte(in) % 4,
				 .count = input_byte(in),
				 .sequence = sequence};
	struct call_record record = call_record_of(&args, r->size, r->fingerprint);

	r->fingerprint = record.fingerprint;
	recorder_add(r->recorder, sequence, &record);
}

/* Some numbers are those of calls that this rank has made, or nearly. */
static uint64_t a_sequence(const struct ring *r, struct input *in)
{
	uint8_t b = input_byte(in);

	if (b == 255)
		return UINT64_MAX - input_byte(in);
	if (b >= 128)
		return recorder_issued(r->recorder) + b - 192;
	return b;
}

/* A call of this rank's own that is in flight. */
static uint64_t own_sequence(const struct ring *r, struct input *in)
{
	uint64_t issued = recorder_issued(r->recorder), back = input_byte(in) % 20;

	return issued > back ? issued - back : 0;
}

static void some_records(struct ring *r, struct input *in)
{
	struct control_message *m = &r->message;

	for (uint32_t i = 0; i < CONTROL_CALLS_MOST; i++) {
		uint8_t how = input_byte(in);
		if (how % 4 && recorder_find(r->recorder, m->first + i, &m->calls[i])) {
			m->calls[i].fingerprint ^= how % 4 == 1;
			continue;
		}
		input_bytes(in, &m->calls[i], how % 4 == 3 ? sizeof m->calls[i] : 9);
	}
}

static void take_message(struct ring *r, struct input *in)
{
	struct control_message *m = &r->message;
	uint8_t how = input_byte(in);

	memset(m, 'x', sizeof *m);
	m->kind = how % 8;
	m->count = input_byte(in);
	m->origin = (int8_t)input_byte(in);
	m->status = (int8_t)input_byte(in);
	m->rank = (int8_t)input_byte(in);
	m->first = a_sequence(r, in);
	m->issued = a_sequence(r, in);
	if (m->kind == CONTROL_CALLS || m->kind == CONTROL_LEAVING)
		some_records(r, in);
	else
		input_bytes(in, m->text, how & 8 ? 40 : 0);
	if (how == 255)
		input_bytes(in, m, sizeof *m);
	r->from = &r->foreign.conns[(how >> 4) % r->foreign.count];
	control_progress(r->control);
	r->from = NULL;
}

/* Something came that this rank did not expect in its call. */
static void suspect(struct ring *r, struct input *in)
{
	struct failure failure = {.status = TUTTI_ERR_MISMATCH,
				  .rank = FAILURE_NO_RANK,
				  .sequence = own_sequence(r, in),
				  .message = "not what was expected"};

	MUST(control_suspect(r->control, &failure, 0));
	MUST(control_suspicion(r->control));
	control_unexplained(r->control, 0);
}

static void do_one(struct ring *r, struct input *in)
{
	char text[200];
	uint8_t what = input_byte(in);

	switch (what % 8) {
	case 0:
		make_call(r, in);
		break;
	case 1:
		control_check(r->control,
			      &(struct control_wait){what & 8 ? NO_CALL : own_sequence(r, in),
						     (what & 16) != 0});
		break;
	case 2:
		control_ask(r->control, own_sequence(r, in), what & 8 ? 1 + what : 0);
		control_missing(r->control, own_sequence(r, in), text, sizeof text);
		suspect(r, in);
		break;
	case 3:
		r->foreign.holds = what & 8;
		control_progress(r->control);
		break;
	case 4:
		if (what >= 248)
			foreign_break(&r->foreign, &r->foreign.conns[what % 2 % r->foreign.count]);
		else if (what >= 240)
			control_leave(r->control);
		control_progress(r->control);
		break;
	default:
		take_message(r, in);
	}
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	struct ring ring = {.foreign = {.says = says, .hears = hears}};
	struct control_peer nowhere[5] = {{0}};
	struct control_config config = {.size = 2 + input_byte(&in) % 4};

	ring.foreign.arg = &ring;
	ring.size = config.size;
	config.rank = input_byte(&in) % config.size;
	foreign_open(&ring.foreign);
	config.endpoint = &ring.foreign.base;
	config.recorder = ring.recorder = recorder_new();
	for (int rank = 0; rank < config.size; rank++)
		nowhere[rank].address_bytes = 1;
	config.peers = nowhere;
	MUST(ring.recorder && control_create(&ring.control, &config) == TUTTI_OK);
	control_bind(ring.control, on_failure, NULL, &ring);
	for (int i = 0; i < ACTIONS_MAX && in.left; i++)
		do_one(&ring, &in);
	ring.foreign.holds = false;
	control_destroy(ring.control);
	recorder_free(ring.recorder);
}
