/* sim's own structs: the world, its links, the streams on them and the messages in those.
 *
 * A link is an ordered pair of ranks: the wire whose bandwidth its messages share. A stream is one
 * direction of one conn: a FIFO of messages on a link and a FIFO of receives that wait for them. */
#ifndef TESTS_SIM_INTERNAL_H
#define TESTS_SIM_INTERNAL_H

#include "tests/sim/agenda.h"
#include "tests/sim/sim.h"

struct sim_message {
	struct sim_message *next;
	struct tutti_io *io;            /* the send; NULL once it has completed                 */
	void *copy;                     /* the payload of a completed send, when there is one   */
	size_t bytes;
	uint32_t tag;
	bool wants_copy;                /* the seed says that this send may complete early      */
	uint64_t arrives_ns;            /* with ports: its first byte, until it has landed      */
};

struct sim_stream {
	struct agenda_entry entry;      /* first: the agenda's entries are streams              */
	struct sim_stream *next;            /* of its link                                          */
	struct sim_link *link;
	uint64_t comm_id[2];
	int channel;
	struct sim_conn *sender, *receiver;     /* NULL: not yet, or no more                    */
	bool sender_gone, receiver_gone;
	struct sim_message *head, **tail;
	struct sim_message *unsent;         /* the first whose send has not completed               */
	struct sim_message *flying;         /* with ports: the first that has not landed            */
	struct tutti_done recvs;        /* the posted receives                                  */
	uint64_t last_arrival_ns;
};

struct sim_link {
	struct sim_link *next;              /* of its hash bucket                                   */
	int from, to;
	double alpha_ns, beta_ns;
	struct sim_stream *streams;
	uint64_t busy_until_ns;         /* the wire is taken by earlier messages                */
	uint64_t delay_ns;              /* of the next message (sim_delay)                      */
};

struct sim_endpoint {
	struct tutti_endpoint base;
	struct sim_endpoint *next;      /* of its rank; the gone ones stay, to be known as gone */
	struct sim_endpoint *next_news;
	struct sim *sim;
	int rank;
	uint64_t comm_id[2];
	bool is_gone, has_news;
	struct tutti_done done;
};

struct sim_conn {
	struct tutti_conn base;
	struct sim_stream *out, *in;
	struct sim_conn *next_caller, **caller_link;    /* in the peer's callers, until it connects */
};

struct sim_rank {
	bool is_dead;
	int node;
	struct sim_endpoint *endpoints;
	struct sim_conn *callers;       /* conns to this rank whose other end is not there yet  */
	uint64_t sends_until_ns, receives_until_ns;     /* its ports are taken                  */
};

struct sim {
	struct sim_config config;
	uint64_t now_ns, messages, random;
	struct sim_rank *ranks;
	struct sim_link **buckets;
	size_t bucket_count, link_count, stream_count;
	struct agenda agenda;
	struct sim_endpoint *news, **news_tail;  /* endpoints with completions nobody was told of */
	struct sim_message *free_messages;
	size_t copied_bytes;            /* now in copies: bounded                               */
};

/* link.c */
/* Made when it is not there yet. NULL: out of memory. */
struct sim_link *sim_link_open(struct sim *sim, int from, int to);
void sim_link_free(struct sim *sim, struct sim_link *link);
/* The stream from -> to of a conn, made when it is not there yet. NULL: out of memory. */
struct sim_stream *sim_stream_open(struct sim *sim, int from, int to, const uint64_t comm_id[2],
                          int channel);
void sim_stream_free(struct sim *sim, struct sim_stream *stream);

/* stream.c: one end of a conn. */
/* Puts a finished io where the rank's next progress finds it, and the rank in the news. */
void sim_conn_complete(struct sim_conn *conn, struct tutti_io *io, tutti_status status);
void sim_conn_fail(struct sim_conn *conn, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/* This end leaves: forgets what is posted and lets the other end know. */
void sim_conn_leave(struct sim_conn *conn);

/* costs.c: when a message arrives. */
void sim_cost_of_link(const struct sim *sim, struct sim_link *link);
uint64_t sim_cost_ns(const struct sim_link *link, size_t bytes);
/* It leaves now: when it arrives, or with ports its first byte. */
uint64_t sim_cost_depart_ns(struct sim *sim, struct sim_stream *stream, size_t bytes);
/* Its first byte is here: when all of it is. */
uint64_t sim_cost_land_ns(struct sim *sim, const struct sim_stream *stream,
			  const struct sim_message *m);

/* stream.c */
bool sim_stream_push(struct sim *sim, struct sim_stream *stream, struct tutti_io *io);
/* Sends that have not completed leave the stream: they complete with status, or are forgotten. */
void sim_stream_drop_sends(struct sim *sim, struct sim_stream *stream, bool is_completing,
                       tutti_status status);
void sim_stream_drop_messages(struct sim *sim, struct sim_stream *stream);
/* Enters the stream in the agenda, or takes it out, as its queues say. */
void sim_stream_refresh(struct sim *sim, struct sim_stream *stream);
/* What sim_step has chosen: one message moves, or (early) one send completes. */
void sim_stream_deliver(struct sim *sim, struct sim_stream *stream);
/* With ports: the next that is due is a first byte; that message takes the receiver's port. */
bool sim_stream_can_land(const struct sim *sim, const struct sim_stream *stream);
void sim_stream_land(struct sim *sim, struct sim_stream *stream);
bool sim_stream_can_copy(const struct sim *sim, const struct sim_stream *stream);
void sim_stream_copy(struct sim *sim, struct sim_stream *stream);
bool sim_stream_can_deliver(const struct sim *sim, const struct sim_stream *stream);

/* splitmix64: the sequence is the seed's alone. */
static inline uint64_t sim_random(struct sim *sim)
{
	uint64_t z = sim->random += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static inline struct sim *sim_of(const struct sim_conn *conn)
{
	return ((struct sim_endpoint *)conn->base.endpoint)->sim;
}

#endif
