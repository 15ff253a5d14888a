/* sim's own structs: the world, its links, the streams on them and the messages in those.
 *
 * A link is an ordered pair of ranks: the wire whose bandwidth its messages share. A stream is one
 * direction of one conn: a FIFO of messages on a link and a FIFO of receives that wait for them. */
#ifndef TRANSPORT_SIM_INTERNAL_H
#define TRANSPORT_SIM_INTERNAL_H

#include "transport/sim/agenda.h"
#include "transport/sim/sim.h"

struct message {
	struct message *next;
	struct tutti_io *io;            /* the send; NULL once it has completed                 */
	void *copy;                     /* the payload of a completed send, when there is one   */
	size_t bytes;
	uint32_t tag;
	bool wants_copy;                /* the seed says that this send may complete early      */
	uint64_t arrives_ns;            /* with ports: its first byte, until it has landed      */
};

struct stream {
	struct agenda_entry entry;      /* first: the agenda's entries are streams              */
	struct stream *next;            /* of its link                                          */
	struct link *link;
	uint64_t comm_id[2];
	int channel;
	struct sim_conn *sender, *receiver;     /* NULL: not yet, or no more                    */
	bool sender_gone, receiver_gone;
	struct message *head, **tail;
	struct message *unsent;         /* the first whose send has not completed               */
	struct message *flying;         /* with ports: the first that has not landed            */
	struct tutti_done recvs;        /* the posted receives                                  */
	uint64_t last_arrival_ns;
};

struct link {
	struct link *next;              /* of its hash bucket                                   */
	int from, to;
	double alpha_ns, beta_ns;
	struct stream *streams;
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
	struct stream *out, *in;
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
	struct link **buckets;
	size_t bucket_count, link_count, stream_count;
	struct agenda agenda;
	struct sim_endpoint *news, **news_tail;  /* endpoints with completions nobody was told of */
	struct message *free_messages;
	size_t copied_bytes;            /* now in copies: bounded                               */
};

uint64_t sim_random(struct sim *sim);
/* The stream from -> to of a conn, made when it is not there yet. NULL: out of memory. */
struct stream *sim_stream(struct sim *sim, int from, int to, const uint64_t comm_id[2],
                          int channel);
void sim_stream_free(struct sim *sim, struct stream *stream);

struct sim *conn_sim(const struct sim_conn *conn);
/* Puts a finished io where the rank's next progress finds it, and the rank in the news. */
void conn_complete(struct sim_conn *conn, struct tutti_io *io, tutti_status status);
void conn_fail(struct sim_conn *conn, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/* This end leaves: forgets what is posted and lets the other end know. */
void conn_leave(struct sim_conn *conn);

/* costs.c: when a message arrives. */
void cost_of_link(const struct sim *sim, struct link *link);
uint64_t cost_ns(const struct link *link, size_t bytes);
/* It leaves now: when it arrives, or with ports its first byte. */
uint64_t cost_depart_ns(struct sim *sim, struct stream *stream, size_t bytes);
/* Its first byte is here: when all of it is. */
uint64_t cost_land_ns(struct sim *sim, const struct stream *stream, const struct message *m);

bool stream_push(struct sim *sim, struct stream *stream, struct tutti_io *io);
/* Sends that have not completed leave the stream: they complete with status, or are forgotten. */
void stream_drop_sends(struct sim *sim, struct stream *stream, bool is_completing,
                       tutti_status status);
void stream_drop_messages(struct sim *sim, struct stream *stream);
/* Enters the stream in the agenda, or takes it out, as its queues say. */
void stream_refresh(struct sim *sim, struct stream *stream);
/* What sim_step has chosen: one message moves, or (early) one send completes. */
void stream_deliver(struct sim *sim, struct stream *stream);
/* With ports: the next that is due on it is a first byte; that message takes the receiver's port. */
bool stream_can_land(const struct sim *sim, const struct stream *stream);
void stream_land(struct sim *sim, struct stream *stream);
bool stream_can_copy(const struct sim *sim, const struct stream *stream);
void stream_copy(struct sim *sim, struct stream *stream);
bool stream_can_deliver(const struct sim *sim, const struct stream *stream);

#endif
