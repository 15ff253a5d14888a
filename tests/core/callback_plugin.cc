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

// Calls leave_in, then their function.
template <auto function> struct guard;
template <typename Result, typename... Args, Result (*tutti_transport::*function)(Args...)>
struct guard<function> {
	static inline const char *name;

	static Result call(Args... args)
	{
		leave_in(name);
		return (theirs->*function)(args...);
	}
};

#define GUARD(function)                                                                            \
	guard<&tutti_transport::function>::name = #function;                                       \
	ours.function = guard<&tutti_transport::function>::call

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
	GUARD(reach);
	GUARD(connect);
	GUARD(send);
	GUARD(recv);
	GUARD(progress);
	GUARD(close);
	GUARD(destroy);
	ours.open = open;
	ours.event_fd = event_fd;
	ours.arm = arm;
	ours.mend = mend;
	ours.in_doubt = in_doubt;
	return &ours;
}
