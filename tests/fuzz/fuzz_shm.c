/* Would break: a shm endpoint, by what connects to its socket, by the memory that is passed along,
 * and by what a peer stores into its rings and mailboxes: counts, frames and headers that cannot
 * be.
 */
#include "fuzz.h"

#include "core/net.h"
#include "transport/shm/shm.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS     4
#define IOS         24
#define ACTIONS_MAX 200
#define SIZE        3
#define SHORT_BYTES 4096 /* of memory that is too short for a lane */
#define NAME_AT     16   /* of the listener, in an address */

struct param_place {
	struct tutti_endpoint *ep;
	char name[40];
	int peers_fd; /* where the peers listen, and never accept */
	uint8_t peers_address[TUTTI_ADDRESS_BYTES];
	struct tutti_conn *conns[SIZE];
	struct tutti_done done;
	struct {
		int fd; /* -1: none */
		bool has_spoken;
		struct shared_memory lane; /* base NULL: none */
	} client[CLIENTS];
	struct tutti_io ios[IOS];
	uint8_t *buffers[IOS];
	int posted;
};

static void progress(struct param_place *p)
{
	struct tutti_io *io;

	for (int i = 0; i < 3; i++) {
		transport_shm.arm(p->ep); /* looks at the sockets, too */
		transport_shm.progress(p->ep, &p->done);
		while ((io = tutti_done_pop(&p->done)))
			MUST(io->status != TUTTI_IN_PROGRESS);
	}
}

static int make_lane(struct param_place *p, int g, uint8_t how)
{
	size_t lane_bytes = ring_pair_bytes(RING_BYTES_MIN);
	size_t bytes = how & 1 ? lane_bytes : SHORT_BYTES;
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	MUST(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	if (how & 2)
		MUST(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	if (!p->client[g].lane.base && bytes == lane_bytes) {
		void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		MUST(base != MAP_FAILED);
		p->client[g].lane.base = base;
		p->client[g].lane.bytes = bytes;
	}
	return fd;
}

/* Of a lane, or of one that waits for a lane; how: which of its fields are wrong. */
static void say_hello(struct param_place *p, int g, struct input *in)
{
	uint8_t how = input_byte(in), about = input_byte(in);
	struct shm_hello hello = {.magic = SHM_MAGIC,
				  .purpose = how & 4 ? SHM_RINGS : SHM_AWAIT,
				  .from = how & 8 ? 2 : 1,
				  .channel = how & 16 ? about : 0,
				  .comm_id = {3, 4},
				  .ring_bytes = RING_BYTES_MIN};
	int fds[2] = {-1, -1}, n = how & 32 ? about % 3 : 1;

	if (p->client[g].fd < 0)
		return;
	if (how & 64)
		input_bytes(in, (uint8_t *)&hello + about % sizeof hello, 1);
	if (hello.purpose != SHM_RINGS && !(how & 32))
		n = 0;
	for (int i = 0; i < n; i++)
		fds[i] = make_lane(p, g, how & 128 ? about : 3);
	bool is_first = !p->client[g].has_spoken;
	p->client[g].has_spoken = true;
	(void)net_send_fds(p->client[g].fd, &hello, sizeof hello, fds, n, 0);
	for (int i = 0; i < n; i++)
		close(fds[i]);
	progress(p);
	/* Else nothing here would reach a ring or a mailbox. */
	if (is_first && how == 4)
		MUST(((struct shm_conn *)p->conns[1])->state != SHM_WAITING);
}

/* The creator's outward ring is the first. */
static void store(struct param_place *p, int g, struct input *in)
{
	struct byte_ring_shared *rings = p->client[g].lane.base;
	struct byte_ring_writer out;
	struct byte_ring_reader back;
	uint8_t how = input_byte(in);
	uint64_t value = how & 8 ? input_number(in) : (uint64_t)input_byte(in) * 64;
	uint8_t bytes[64];
	size_t at;

	if (!rings)
		return;
	ring_pair_ends(&p->client[g].lane, true, &out, &back);
	switch (how % 8) {
	case 0:
		atomic_store(&rings[how >> 7].written, value);
		break;
	case 1:
		atomic_store(&rings[how >> 7].read, value << (how & 32));
		break;
	case 2:
		atomic_store(&rings[how >> 7].reader_sleeps, (uint32_t)value);
		atomic_store(&rings[how >> 7].writer_sleeps, (uint32_t)value);
		break;
	case 3:
	case 4:
		atomic_fetch_add(&rings[0].written, value);
		break;
	default:
		at = value % (2 * RING_BYTES_MIN - sizeof bytes);
		input_bytes(in, bytes, how >> 4);
		memcpy(out.bytes + at, bytes, how >> 4);
	}
}

/* The first cells, so that a message is soon the next one. */
static void store_mail(struct param_place *p, int g, struct input *in)
{
	uint8_t how = input_byte(in);
	uint64_t value =
		how & 8 ? (uint64_t)input_number(in) << (how & 16 ? 32 : 0) : input_byte(in);
	struct mailbox_writer out;
	struct mailbox_reader back;

	if (!p->client[g].lane.base)
		return;
	ring_pair_mailboxes(&p->client[g].lane, true, &out, &back);
	struct mailbox_cell *cell = &out.shared->cells[(how >> 5) % 4];
	switch (how % 8) {
	case 0:
		cell->mail.bytes = (uint32_t)value;
		break;
	case 1:
		cell->mail.bytes = (uint32_t)value * MAILBOX_SHORT_BYTES / 8;
		break;
	case 2:
		cell->mail.ring_at = value * 64;
		break;
	case 3:
		atomic_store(&back.shared->delivered, value);
		break;
	case 4:
		atomic_store(&back.shared->ring_taken, value * 64);
		break;
	default:
		atomic_store(&cell->turn, 1 + (how >> 5) % 4 + (value & 1) * MAILBOX_CELLS);
	}
}

/* What p2p does: takes what has come, delivers some of it, and sends. */
static void use_mail(struct param_place *p, struct input *in)
{
	uint8_t how = input_byte(in), *data = malloc(MAILBOX_MESSAGE_BYTES);
	struct mailbox_reader *box = shm_mail_reader(p->conns[1]);
	struct mail mail;

	MUST(data);
	memset(data, 'm', MAILBOX_MESSAGE_BYTES);
	for (int i = 0; i < how % 8 && box && mailbox_peek(box, &mail); i++) {
		MUST(mail.bytes <= MAILBOX_MESSAGE_BYTES);
		mailbox_take(box, &mail, data);
		if (how & 8)
			mailbox_deliver(box);
	}
	mail = (struct mail){.bytes = (uint32_t)(how >> 4) * (MAILBOX_MESSAGE_BYTES / 15)};
	(void)shm_mail_send(p->conns[1], &mail, data);
	free(data);
}

/* Rank 1 at the beginning, rank 2 when it is needed first: then its lane may be there already. */
static struct tutti_conn *conn_to(struct param_place *p, int rank)
{
	if (!p->conns[rank])
		MUST(transport_shm.connect(p->ep, rank, 0, p->peers_address, p->ep->address_bytes,
					   &p->conns[rank]) == TUTTI_OK);
	return p->conns[rank];
}

static void post(struct param_place *p, uint8_t how)
{
	static const size_t sizes[] = {0, 1, 48, 64, 4096, 20000, 100, 16000};
	struct tutti_io *io = &p->ios[p->posted];

	if (p->posted == IOS)
		return;
	*io = (struct tutti_io){.bytes = sizes[how % 8]};
	io->buf = p->buffers[p->posted] = malloc(io->bytes + 1);
	MUST(io->buf);
	memset(io->buf, 's', io->bytes);
	p->posted++;
	if (how & 8)
		transport_shm.send(conn_to(p, how & 16 ? 2 : 1), io);
	else
		transport_shm.recv(conn_to(p, how & 16 ? 2 : 1), io);
}

static void hang_up(struct param_place *p, int g)
{
	if (p->client[g].fd >= 0)
		close(p->client[g].fd);
	if (p->client[g].lane.base)
		munmap(p->client[g].lane.base, p->client[g].lane.bytes);
	p->client[g].fd = -1;
	p->client[g].lane = (struct shared_memory){.base = NULL};
}

static void open_client(struct param_place *p, int g)
{
	p->client[g].fd = fuzz_connect(p->name);
	p->client[g].has_spoken = false;
}

static void do_one(struct param_place *p, struct input *in)
{
	uint8_t what = input_byte(in), bytes[256];
	int g = (what >> 4) % CLIENTS;
	size_t n;

	switch (what & 7) {
	case 0:
		if (what & 8)
			hang_up(p, g);
		else
			use_mail(p, in);
		break;
	case 1:
		if (p->client[g].fd < 0)
			open_client(p, g);
		break;
	case 2:
		n = input_byte(in);
		input_bytes(in, bytes, n);
		fuzz_send(p->client[g].fd, bytes, n);
		p->client[g].has_spoken = true;
		break;
	case 3:
		say_hello(p, g, in);
		break;
	case 4:
		store(p, g, in);
		break;
	case 5:
		(what & 8 ? store_mail : store)(p, g, in);
		break;
	default:
		post(p, input_byte(in));
	}
	progress(p);
}

/* Of a peer; a name that it makes of it has an end. */
static void read_address(struct param_place *p, struct input *in)
{
	uint8_t address[TUTTI_ADDRESS_BYTES];
	size_t n = p->ep->address_bytes;
	char name[40];

	memcpy(address, p->ep->address, sizeof address);
	if (input_byte(in) & 1)
		n = input_byte(in);
	input_bytes(in, address + NAME_AT, in->left < 64 ? in->left : 64);
	if (shm_address_read(p->ep, address, n, name))
		MUST(memchr(name, 0, sizeof name));
}

static void open_place(struct param_place *p)
{
	static unsigned places;
	char peers[40] = "";
	struct tutti_endpoint_config config = {
		.size = SIZE, .comm_id = {3, 4}, .timeout_ms = 600000, .host_id = "fuzz"};

	MUST(transport_shm.open(&p->ep, &config) == TUTTI_OK);
	MUST(shm_address_read(p->ep, p->ep->address, p->ep->address_bytes, p->name));
	tutti_done_init(&p->done);
	for (int g = 0; g < CLIENTS; g++)
		p->client[g].fd = -1;
	snprintf(peers, sizeof peers, "tutti-fuzz-shm-%d-%u", (int)getpid(), places++);
	MUST(net_unix_listen(peers, 10, &p->peers_fd) == TUTTI_OK);
	memcpy(p->peers_address, p->ep->address, sizeof p->peers_address);
	memcpy(p->peers_address + NAME_AT, peers, sizeof peers);
	conn_to(p, 1);
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	static struct param_place p;

	p = (struct param_place){0};
	fuzz_fixed_random();
	open_place(&p);
	if (input_byte(&in) == 255)
		read_address(&p, &in);
	for (int i = 0; i < ACTIONS_MAX && in.left; i++)
		do_one(&p, &in);
	for (int g = 0; g < CLIENTS; g++)
		hang_up(&p, g);
	progress(&p);
	for (int rank = 1; rank < SIZE; rank++)
		transport_shm.close(p.conns[rank]);
	transport_shm.destroy(p.ep);
	close(p.peers_fd);
	for (int i = 0; i < p.posted; i++)
		free(p.buffers[i]);
}
