/* How ranks find each other: which rank this is (from the launcher's environment or a config), and
 * one meeting place in which all ranks exchange small records before there is a communicator. */
#ifndef CORE_JOIN_RENDEZVOUS_H
#define CORE_JOIN_RENDEZVOUS_H

#include "core/env.h"

#include <tutti/transport.h>

#include <stdbool.h>

enum job_meeting { JOB_ALONE, JOB_TCP, JOB_FILE }; /* ALONE: no rendezvous was given */

/* Which rank this process is. Strings are copies. */
struct job {
	int rank, size;
	int local_rank, local_size;          /* the launcher's word, or -1                  */
	int local_ranks;                     /* that each process makes, all alike; 0: not said */
	enum job_meeting meeting;
	char launcher[24];                   /* "tuttirun", "torchrun", "slurm", ... for the log */
	char host[256];                      /* JOB_TCP: where rank 0 serves                */
	int port;
	int port_is_taken;                   /* by the launcher, maybe by another job: rank 0
	                                      * takes one above it, the others probe upward */
	int is_url;                          /* a URL of tutti_rendezvous_open: host is a list
	                                      * "a,b", and the secret is the URL's          */
	int is_served;                       /* is_url, and the process that opened it serves
	                                      * the ranks: rank 0 connects like the others  */
	char path[512];                      /* JOB_FILE                                    */
	int server;                          /* the rank that serves the others; -1 if it is one
	                                      * of those that are there already             */
	int is_growing;                      /* those who are there already meet new ones: at the
	                                      * same place, with another key               */
	uint32_t hosts;                      /* a hash of the launcher's list of all ranks'
	                                      * hosts, the same on all ranks; or 0          */
	char secret[256];                    /* "" when none was given                      */
	bool has_tls;                        /* all that it says over tcp goes through TLS  */
};

/* Reads config, then the environment. INVALID with a message when they contradict each other. */
tutti_status job_find(struct job *job, const tutti_config *config, const struct env *env);
/* The size of the job that a launcher has started this process for; 0: there is no launcher. */
tutti_status job_launched(int *size);
/* Overwrites the secret in memory. */
void job_forget(struct job *job);

/* The rendezvous and the secret by which the ranks of a communicator joined, for ranks that join
 * later. Counted: a communicator and all that are made from it hold one, and the last drop
 * overwrites the secret. */
struct origin;
struct origin *origin_new(const struct job *job);          /* NULL: no memory */
struct origin *origin_hold(struct origin *origin);         /* NULL is fine    */
void origin_drop(struct origin *origin);                   /* NULL is fine    */

/* The job of a communicator that grows, in which this process is rank `rank` of `size`. Rendezvous
 * and secret are config's; each that config leaves out is origin's, and the environment's if there
 * is none either (origin is NULL, or of a rank that was alone). Ignores rank and world_size of
 * config and of the launcher. */
tutti_status job_find_again(struct job *job, int rank, int size, const struct origin *origin,
                            const tutti_config *config, const struct env *env);
/* Keeps the ports where the environment says that ranks meet from this process's other listeners,
 * as job_find does with the job's: one that stayed there would keep later meetings out. */
void job_reserve_ports(const struct env *env);
/* Whether the place is on this machine, so that this process may serve there. */
bool job_is_here(const struct job *job);

struct rendezvous;

/* Meets the other ranks: serves (rank 0) or connects, proves the secret both ways. */
tutti_status rendezvous_join(struct rendezvous **rendezvous, const struct job *job,
                             const struct env *env, uint64_t deadline_ns);
/* Every rank gives bytes (the same number everywhere) and gets size * bytes, in rank order. The
 * message of a TIMEOUT names the ranks that are missing. Any number of rounds. */
tutti_status rendezvous_all_gather(struct rendezvous *rendezvous, const void *mine, size_t bytes,
                                   void *all, uint64_t deadline_ns);
/* The job's key and this communicator's number: the same on all ranks, unguessable. */
void rendezvous_identity(const struct rendezvous *rendezvous, uint8_t key[TUTTI_KEY_BYTES],
                         uint64_t comm_id[2]);
/* NULL is fine. Rank 0 stays until every rank that joined has its last answer, or the deadline. */
void rendezvous_leave(struct rendezvous *rendezvous, uint64_t deadline_ns);

/* A word to tuttirun, if it has started this process. May wait for 5 s if that does not listen. */
enum launcher_word {
	LAUNCHER_JOINED = 'j', /* has joined the others by tutti_init                      */
	LAUNCHER_GROWS = 'g', /* calls tutti_comm_grow                                      */
	LAUNCHER_WAITS = 'w', /* was started again, and no rank calls tutti_comm_grow       */
};
void rendezvous_tell_launcher(enum launcher_word word);

/* tutti_rendezvous_open's server: a thread that serves one meeting, wherever rank 0 is. */
tutti_status rendezvous_serve(char *url, size_t url_bytes, const struct env *env);
/* Ends it. OK if no server of this process has this URL (any more); INVALID: it is no such URL. */
tutti_status rendezvous_unserve(const char *url);

#endif
