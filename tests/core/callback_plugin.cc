// For test_callback.sh: the transport of $MAILBOX, of which the function $LEAVES throws, or ends
// its thread with $HOW=exit.
#include <tutti/transport.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

static const tutti_transport *theirs;
static tutti_transport ours;

static void leave_in(const char *function)
{
	const char *leaves = std::getenv("LEAVES"), *how = std::getenv("HOW");

	if (!leaves || std::strcmp(leaves, function) != 0)
		return;
	if (how && std::strcmp(how, "exit") == 0)
		pthread_exit(nullptr);
	throw std::runtime_error("this transport throws");
}

static tutti_status open(tutti_endpoint **ep, const tutti_endpoint_config *config)
{
	leave_in("open");
	tutti_status status = theirs->open(ep, config);
	if (status == TUTTI_OK)
		(*ep)->transport = &ours;
	return status;
}

static int reach(tutti_endpoint *ep, int peer, const uint8_t *address, size_t bytes)
{
	leave_in("reach");
	return theirs->reach(ep, peer, address, bytes);
}

static tutti_status connect(tutti_endpoint *ep, int peer, int channel, const uint8_t *address,
			    size_t bytes, tutti_conn **conn)
{
	leave_in("connect");
	return theirs->connect(ep, peer, channel, address, bytes, conn);
}

static void send(tutti_conn *conn, tutti_io *io)
{
	leave_in("send");
	theirs->send(conn, io);
}

static void recv(tutti_conn *conn, tutti_io *io)
{
	leave_in("recv");
	theirs->recv(conn, io);
}

static int progress(tutti_endpoint *ep, tutti_done *done)
{
	leave_in("progress");
	return theirs->progress(ep, done);
}

static void close(tutti_conn *conn)
{
	leave_in("close");
	theirs->close(conn);
}

static void destroy(tutti_endpoint *ep)
{
	leave_in("destroy");
	theirs->destroy(ep);
}

static int event_fd(tutti_endpoint *)
{
	static int fd = eventfd(0, EFD_CLOEXEC);

	leave_in("event_fd");
	return fd;
}

static int arm(tutti_endpoint *)
{
	leave_in("arm");
	return std::strcmp(std::getenv("LEAVES"), "event_fd") != 0;
}

static int mend(tutti_endpoint *, int *)
{
	leave_in("mend");
	return 0;
}

// A rank that destroys its communicator in doubt calls mend.
static int in_doubt(tutti_endpoint *)
{
	leave_in("in_doubt");
	return std::strcmp(std::getenv("LEAVES"), "mend") == 0;
}

extern "C" __attribute__((visibility("default"))) const tutti_transport *tutti_transport_plugin()
{
	void *library = dlopen(std::getenv("MAILBOX"), RTLD_NOW);
	void *symbol = dlsym(library, "tutti_transport_plugin");
	const tutti_transport *(*plugin)();

	leave_in("tutti_transport_plugin");
	std::memcpy(&plugin, &symbol, sizeof plugin);
	theirs = plugin();
	ours = *theirs;
	ours.open = open;
	ours.reach = reach;
	ours.connect = connect;
	ours.send = send;
	ours.recv = recv;
	ours.progress = progress;
	ours.close = close;
	ours.destroy = destroy;
	ours.event_fd = event_fd;
	ours.arm = arm;
	ours.mend = mend;
	ours.in_doubt = in_doubt;
	return &ours;
}
