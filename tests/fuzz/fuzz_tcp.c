/* Would break: a tcp endpoint, by attackers at its listener and by peers that have proved the
 * secret and send headers and payloads of any length. The listener is a Unix socket here: the
 * machine's ports would not last. */
#include "fuzz.h"

#include "core/crc32c.h"
#include "core/net.h"
#include "transport/tcp/accept.h"
#include "transport/tcp/address.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS     6
#define IOS         24
#define IO_BYTES    20000
#define ACTIONS_MAX 200
#define SIZE        3

extern const struct tutti_transport transport_tcp;

struct param_place {
	struct tcp_endpoint *ep;
	char name[40];
	struct tutti_conn *conns[SIZE];
	struct tutti_done done;
	int client[CLIENTS]; /* -1: none */
	struct auth auth[CLIENTS];
	uint32_t number[CLIENTS]; /* of the next message */
	struct tutti_io ios[IOS];
	uint8_t *buffers[IOS];
	int posted;
};

static const uint8_t key[TUTTI_KEY_BYTES] = "the job's key";
static const uint8_t payload[IO_BYTES];

static void progress(struct param_place *p)
{
	struct tutti_io *io;

	p->ep->wants_look = true;
	transport_tcp.progress(&p->ep->base, &p->done);
	while ((io = tutti_done_pop(&p->done)))
		MUST(io->status != TUTTI_IN_PROGRESS);
}

/* Whose channel the client says it is: mostly what this rank expects. */
static void say_hello(struct param_place *p, int g, uint8_t how)
{
	uint8_t context[AUTH_CONTEXT_BYTES], hello[AUTH_HELLO_BYTES];
	int from = how % 4 == 3 ? -1 : how % 4, channel = how & 16 ? 1000 : 0;

	bool reconnects = how & 64;

	tcp_context(context, p->ep, from, how & 32 ? 1 : 0, channel,
		    tcp_terms(p->ep, reconnects, reconnects ? how >> 2 & 3 : 0));
	context[0] ^= how >> 7; /* another communicator's */
	auth_hello(&p->auth[g], key, context, hello);
	fuzz_send(p->client[g], hello, sizeof hello);
	progress(p);
}

static void say_proof(struct param_place *p, int g)
{
	uint8_t answer[AUTH_ANSWER_BYTES], proof[AUTH_PROOF_BYTES];

	if (p->client[g] < 0 ||
	    recv(p->client[g], answer, sizeof answer, MSG_DONTWAIT) != (ssize_t)sizeof answer ||
	    auth_check_answer(&p->auth[g], answer, proof) != TUTTI_OK)
		return;
	fuzz_send(p->client[g], proof, sizeof proof);
	p->number[g] = 0;
	progress(p);
}

/* Its sums are right, or one of them is not. */
static size_t make_header(const struct param_place *p, uint8_t header[TCP_SUMMED_BYTES],
			  uint64_t bytes, uint32_t tag, uint32_t number, uint8_t how)
{
	uint32_t sums[2];

	memcpy(header, &bytes, 8);
	memcpy(header + 8, &tag, 4);
	memcpy(header + 12, &number, 4);
	if (!tcp_has_checksums(p->ep))
		return TCP_HEADER_BYTES;
	sums[0] = crc32c(0, payload, bytes < IO_BYTES ? (size_t)bytes : IO_BYTES);
	sums[0] ^= how >> 5 & 1;
	memcpy(header + TCP_HEADER_BYTES, &sums[0], 4);
	sums[1] = crc32c(0, header, TCP_SUMMED_BYTES - 4) ^ (how >> 6 & 1);
	memcpy(header + TCP_HEADER_BYTES + 4, &sums[1], 4);
	return TCP_SUMMED_BYTES;
}

static void say_message(struct param_place *p, int g, struct input *in)
{
	static const uint64_t sizes[] = {0, 1, 64, 8191, 8192, 20000, 1u << 31, UINT64_MAX};
	uint8_t how = input_byte(in), header[TCP_SUMMED_BYTES];
	uint64_t bytes = sizes[how % 8];
	uint32_t number = p->number[g]++ + (how >= 250);
	size_t cut = how & 16 ? input_number(in) : SIZE_MAX;

	fuzz_send(p->client[g], header, make_header(p, header, bytes, how >> 3 & 1, number, how));
	if (cut > bytes)
		cut = (size_t)bytes;
	fuzz_send(p->client[g], payload, cut < sizeof payload ? cut : sizeof payload);
}

static void post(struct param_place *p, uint8_t how)
{
	static const size_t sizes[] = {0, 1, 64, 8191, 8192, 20000, 16, 4096};
	struct tutti_io *io = &p->ios[p->posted];

	if (p->posted == IOS)
		return;
	*io = (struct tutti_io){.bytes = sizes[how % 8]};
	io->buf = p->buffers[p->posted] = malloc(io->bytes + 1);
	MUST(io->buf);
	memset(io->buf, 's', io->bytes);
	p->posted++;
	if (how & 8)
		transport_tcp.send(p->conns[how & 16 ? 2 : 1], io);
	else
		transport_tcp.recv(p->conns[how & 16 ? 2 : 1], io);
}

static void hang_up(struct param_place *p, int g)
{
	if (p->client[g] >= 0)
		close(p->client[g]);
	p->client[g] = -1;
}

static void do_one(struct param_place *p, struct input *in)
{
	uint8_t what = input_byte(in), bytes[256];
	int g = (what >> 4) % CLIENTS;
	size_t n;

	switch (what & 15) {
	case 0:
		hang_up(p, g);
		break;
	case 1:
		n = input_byte(in);
		input_bytes(in, bytes, n);
		fuzz_send(p->client[g], bytes, n);
		break;
	case 2:
	case 3:
		say_hello(p, g, input_byte(in));
		break;
	case 4:
	case 5:
		say_proof(p, g);
		break;
	case 6:
	case 7:
	case 8:
		say_message(p, g, in);
		break;
	case 9:
	case 10:
	case 11:
		post(p, input_byte(in));
		break;
	case 12:
	case 13:
		if (p->client[g] < 0)
			p->client[g] = fuzz_connect(p->name);
		break;
	default:
		break;
	}
	progress(p);
}

/* Addresses of peers: whatever they are, there are no more candidates than there is room. */
static void read_address(struct param_place *p, struct input *in)
{
	struct tcp_address list[TCP_CANDIDATES];
	uint8_t address[TUTTI_ADDRESS_BYTES];
	size_t n = in->left < sizeof address ? in->left : sizeof address;
	char text[TCP_TEXT_BYTES];

	memcpy(address, p->ep->base.address, sizeof address);
	input_bytes(in, address, n);
	if (n == 0)
		n = p->ep->base.address_bytes;
	int reach = tcp_address_reach(p->ep, address, n);
	int count = tcp_address_candidates(p->ep, address, n, list);
	MUST(count >= 0 && count <= TCP_CANDIDATES && (reach == 0 || count > 0));
	for (int i = 0; i < count; i++)
		tcp_address_print((struct sockaddr *)&list[i].sockaddr, text);
}

/* how 2: with TLS, of which clients know no more than that it is next. */
static void open_place(struct param_place *p, uint8_t how)
{
	static unsigned places;
	struct tutti_endpoint_config config = {.size = SIZE,
					       .comm_id = {3, 4},
					       .timeout_ms = 600000,
					       .checksum = how == 1,
					       .tls = how == 2 && tls_load() == TUTTI_OK};
	struct tutti_endpoint *endpoint;

	memcpy(config.key, key, sizeof key);
	MUST(transport_tcp.open(&endpoint, &config) == TUTTI_OK);
	p->ep = (struct tcp_endpoint *)endpoint;
	tcp_watch_close(p->ep, &p->ep->listener);
	snprintf(p->name, sizeof p->name, "tutti-fuzz-tcp-%d-%u", (int)getpid(), places++);
	MUST(net_unix_listen(p->name, 100, &p->ep->listener.fd) == TUTTI_OK);
	MUST(tcp_epoll_open(p->ep) == TUTTI_OK);
	tutti_done_init(&p->done);
	for (int g = 0; g < CLIENTS; g++)
		p->client[g] = -1;
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	static struct param_place p;
	uint8_t how;

	p = (struct param_place){0};
	fuzz_fixed_random();
	how = input_byte(&in);
	open_place(&p, how);
	if (how == 255)
		read_address(&p, &in);
	for (int rank = 1; rank < SIZE; rank++)
		MUST(transport_tcp.connect(&p.ep->base, rank, 0, p.ep->base.address,
					   p.ep->base.address_bytes, &p.conns[rank]) == TUTTI_OK);
	for (int i = 0; i < ACTIONS_MAX && in.left; i++)
		do_one(&p, &in);
	for (int g = 0; g < CLIENTS; g++)
		hang_up(&p, g);
	progress(&p);
	for (int rank = 1; rank < SIZE; rank++)
		transport_tcp.close(p.conns[rank]);
	transport_tcp.destroy(&p.ep->base);
	for (int i = 0; i < p.posted; i++)
		free(p.buffers[i]);
}
