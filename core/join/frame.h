/* The frames that ranks and the meeting's server exchange, after core/auth.h's handshake. All
 * numbers are little-endian; no frame is believed to be longer than its kind may be.
 *
 *     HELLO     rank -> server   u32 version, rank, size, hosts   value: ms until its deadline,
 *                                                             and local_ranks << 32
 *     RECORD    rank -> server   its record of this round        value: ms until its deadline
 *     BYE       rank -> server   nothing                         value: ms it may still wait
 *     WELCOME   server -> rank   u64 comm_id[2]                  all ranks have joined
 *     ANSWER    server -> rank   all ranks' records
 *     FAILURE   server -> rank   why it failed                   value: its status */
#ifndef CORE_JOIN_FRAME_H
#define CORE_JOIN_FRAME_H

#include "core/clock.h"

#include <stddef.h>
#include <stdint.h>

enum frame_kind {
	FRAME_HELLO = 1, FRAME_RECORD, FRAME_BYE, FRAME_WELCOME, FRAME_ANSWER, FRAME_FAILURE
};

#define FRAME_BYTES 16            /* a header: u32 kind, u32 bytes, u64 value */
#define FRAME_HELLO_BYTES 16      /* in all versions, so that ranks of two can say so */
#define FRAME_WELCOME_BYTES 16
#define FRAME_VERSION 2

#define RECORD_MAX (64 << 10)     /* of one rank in one round */
#define ANSWER_MAX (256 << 20)

struct frame {
	uint32_t kind, bytes;
	uint64_t value;
};

static inline void put_u32(uint8_t *to, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(v >> 8 * i);
}

static inline uint32_t get_u32(const uint8_t *from)
{
	return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static inline void put_u64(uint8_t *to, uint64_t v)
{
	put_u32(to, (uint32_t)v);
	put_u32(to + 4, (uint32_t)(v >> 32));
}

static inline uint64_t get_u64(const uint8_t *from)
{
	return get_u32(from) | (uint64_t)get_u32(from + 4) << 32;
}

static inline void frame_put(uint8_t to[FRAME_BYTES], struct frame f)
{
	put_u32(to, f.kind);
	put_u32(to + 4, f.bytes);
	put_u64(to + 8, f.value);
}

static inline struct frame frame_get(const uint8_t from[FRAME_BYTES])
{
	return (struct frame){get_u32(from), get_u32(from + 4), get_u64(from + 8)};
}

/* Deadlines cross the wire as what is left of them, at most a week. */
#define LEFT_MAX_MS (7 * 86400000)

static inline uint64_t deadline_left_ms(uint64_t deadline_ns)
{
	return (uint64_t)deadline_poll_ms(deadline_ns, LEFT_MAX_MS);
}

static inline uint64_t deadline_from_left(uint64_t left_ms)
{
	return deadline_after_ms(left_ms < LEFT_MAX_MS ? (int64_t)left_ms : LEFT_MAX_MS);
}

#endif
