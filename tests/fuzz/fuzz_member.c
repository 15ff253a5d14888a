/* Would break: a rank, by what another rank says of itself when it joins: texts without an end,
 * lengths that do not fit, numbers that cannot be. The input alters a sound description, so that it
 * gets far. */
#include "fuzz.h"

#include "collectives/comm/join.h"

#include <string.h>

#define SIZE 3

static void alter(struct member *member, struct input *in)
{
	while (in->left > 1) {
		size_t at = (size_t)input_byte(in) << 8;
		size_t n = input_byte(in);
		uint8_t how = input_byte(in);

		at = (at + how) % sizeof *member;
		if (n > sizeof *member - at)
			n = sizeof *member - at;
		if (how & 1)
			memset((uint8_t *)member + at, input_byte(in), n);
		else
			input_bytes(in, (uint8_t *)member + at, n);
	}
}

static void whole_texts(struct member *member, struct input *in)
{
	uint8_t how = input_byte(in);

	if (how & 1)
		memset(member->version, 'v', sizeof member->version);
	if (how & 2)
		memset(member->host_id, 'h', sizeof member->host_id);
	if (how & 4)
		memset(member->algo, 'a', sizeof member->algo);
	if (how & 8)
		memset(member->transports, 't', sizeof member->transports);
	if (how & 16)
		member->status = (int8_t)input_byte(in);
	if (how & 32)
		member->address[input_byte(in) % TRANSPORTS_MAX].bytes = input_number(in);
	if (how & 64)
		member->control.bytes = input_number(in);
	if (how & 128)
		member->host_id[0] ^= 1;
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	struct member members[SIZE];
	struct tutti_comm *comm;
	struct env env;
	tutti_config config = {0};
	tutti_status status;

	fuzz_fixed_random();
	MUST(env_load(&env) == TUTTI_OK);
	MUST(comm_new(&comm, &config, &env, 1, SIZE) == TUTTI_OK);
	MUST(comm_describe(comm, &members[1]) == TUTTI_OK);
	members[0] = members[2] = members[1];
	whole_texts(&members[0], &in);
	whole_texts(&members[2], &in);
	alter(&members[2], &in);
	status = comm_meet(comm, members);
	MUST(status != TUTTI_IN_PROGRESS && status >= TUTTI_OK && status <= TUTTI_ERR_INTERNAL);
	MUST(comm->place.local_size >= 1 && comm->place.local_size <= SIZE &&
	     comm->place.num_nodes <= SIZE);
	comm_free(comm);
}
