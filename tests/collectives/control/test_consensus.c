/* What would break: ranks that live, and of which one misses what they have agreed on, or is left
 * out, because a connection between them has broken: with any message that is lost, and while one
 * of the two has not come yet. */
#include "collectives/control/consensus_internal.h"
#include "collectives/control/consensus.h"
#include "transport/registry.h"
#include "transport/shm/shm.h"
#include "transport/tcp/conn.h"
#include "tests/limit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS      3
#define QUESTIONS  2
#define TIMEOUT_MS 20000
#define BREAKS     6

struct member {
	pthread_t thread;
	int rank;
	struct consensus *consensus;
	tutti_status status[QUESTIONS];
	uint8_t marks[QUESTIONS][RANKS];
	int records[QUESTIONS][RANKS];
};

/* The first message of this kind about this question that arrives is lost, and its connection
 * breaks; NOTHING: none. */
static enum agreement_kind lost_kind;
static int lost_question;
static atomic_int is_lost;
/* The rank that waits for this one, whose connections break before it comes; -1 if none does. */
static int late_rank;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int breaks; /* so many, in locked hands */
static _Thread_local struct consensus_link *to_late;
static _Thread_local int last_channel;

void __real_consensus_link_done(struct consensus_link *l, const struct tutti_io *io);
void __wrap_consensus_link_done(struct consensus_link *l, const struct tutti_io *io);
bool __real_consensus_link_open(struct consensus_link *l);
bool __wrap_consensus_link_open(struct consensus_link *l);

static void break_socket(const struct tutti_conn *conn)
{
	bool is_tcp = conn->endpoint->transport == &transport_tcp;
	int fd = is_tcp ? ((const struct tcp_conn *)conn)->watch.fd
			: ((const struct shm_conn *)conn)->watch.fd;

	shutdown(fd, SHUT_RDWR);
}

/* Its sender takes it for sent. */
void __wrap_consensus_link_done(struct consensus_link *l, const struct tutti_io *io)
{
	struct tutti_io failed = *io;

	if (io != &l->in_head || io->status != TUTTI_OK || l->in.kind != lost_kind ||
	    l->in.number != CONSENSUS_NUMBER(1, 4 * lost_question) ||
	    atomic_exchange(&is_lost, 1)) {
		__real_consensus_link_done(l, io);
		return;
	}
	break_socket(l->conn);
	failed.status = TUTTI_ERR_PEER;
	__real_consensus_link_done(l, &failed);
}

bool __wrap_consensus_link_open(struct consensus_link *l)
{
	if (l->peer == late_rank)
		to_late = l;
	return __real_consensus_link_open(l);
}

/* One connection after the other, as soon as it is sought. */
static void break_some(void *arg, uint64_t waited_ns)
{
	(void)arg;
	(void)waited_ns;
	if (!to_late || !to_late->conn || to_late->conn->channel == last_channel)
		return;
	last_channel = to_late->conn->channel;
	pthread_mutex_lock(&lock);
	if (breaks < BREAKS) {
		break_socket(to_late->conn);
		breaks++;
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
}

static void *take_part(void *arg)
{
	struct member *m = arg;

	to_late = NULL;
	last_channel = -1;
	pthread_mutex_lock(&lock);
	while (m->rank == late_rank && breaks < BREAKS)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < QUESTIONS; i++) {
		int record = 100 * i + m->rank;
		struct consensus_question question = {.name = "test",
						      .number = CONSENSUS_NUMBER(1, 4 * i),
						      .record = &record,
						      .record_bytes = sizeof record,
						      .wait = break_some};
		m->status[i] = consensus_ask(m->consensus, &question, m->marks[i], m->records[i]);
	}
	return NULL;
}

static void found(struct member *members, const struct tutti_transport *transport)
{
	struct tutti_endpoint *endpoints[RANKS];

	for (int r = 0; r < RANKS; r++) {
		struct tutti_endpoint_config own = {.rank = r,
						    .size = RANKS,
						    .host_id = "here",
						    .comm_id = {7, (uint64_t)getpid()},
						    .timeout_ms = TIMEOUT_MS};
		struct consensus_config config = {
			.rank = r, .size = RANKS, .timeout_ms = TIMEOUT_MS};
		assert_int_equal(transport->open(&endpoints[r], &own), TUTTI_OK);
		config.endpoint = endpoints[r];
		members[r] = (struct member){.rank = r};
		assert_int_equal(consensus_create(&members[r].consensus, &config), TUTTI_OK);
	}
	for (int r = 0; r < RANKS; r++)
		for (int s = 0; s < RANKS; s++)
			assert_int_equal(consensus_introduce(members[r].consensus, s,
							     endpoints[s]->address,
							     endpoints[s]->address_bytes),
					 TUTTI_OK);
}

/* All that live have each answer, and it is the same: all of them, with their records. */
static void expect_agreed(const struct member *m)
{
	for (int i = 0; i < QUESTIONS; i++) {
		assert_int_equal(m->status[i], TUTTI_OK);
		for (int r = 0; r < RANKS; r++) {
			assert_int_equal(m->marks[i][r], MARK_MEMBER);
			assert_int_equal(m->records[i][r], 100 * i + r);
		}
	}
}

static void agree(const struct tutti_transport *transport)
{
	struct member members[RANKS];

	breaks = 0;
	atomic_store(&is_lost, 0);
	found(members, transport);
	for (int r = 0; r < RANKS; r++)
		assert_int_equal(pthread_create(&members[r].thread, NULL, take_part, &members[r]),
				 0);
	for (int r = 0; r < RANKS; r++)
		assert_int_equal(pthread_join(members[r].thread, NULL), 0);
	for (int r = 0; r < RANKS; r++) {
		expect_agreed(&members[r]);
		consensus_drop(members[r].consensus);
	}
}

/* After the last question those who have their answer leave. */
static void any_message_is_lost(void **state)
{
	static const enum agreement_kind kinds[] = {AGREEMENT_CALL,    AGREEMENT_JOIN,
						    AGREEMENT_PROPOSE, AGREEMENT_ACCEPT,
						    AGREEMENT_DECIDE,  AGREEMENT_KNOWN};

	late_rank = -1;
	for (size_t i = 0; i < 2 * sizeof kinds / sizeof *kinds; i++) {
		lost_kind = kinds[i / 2];
		lost_question = i % 2 ? QUESTIONS - 1 : 0;
		agree(&transport_shm);
		assert_int_equal(atomic_load(&is_lost), 1);
		agree(&transport_tcp);
		assert_int_equal(atomic_load(&is_lost), 1);
	}
}

/* By tcp nobody is connected before the other answers, and who is not dials again by itself. */
static void broken_before_the_other_comes(void **state)
{
	lost_kind = AGREEMENT_NOTHING;
	for (late_rank = 0; late_rank < RANKS; late_rank++)
		agree(&transport_shm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_message_is_lost),
		cmocka_unit_test(broken_before_the_other_comes),
	};

	test_limit(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
