/* Two processes: memory that one maps from the other, by handle and by descriptor; handles that are
 * stale; kernels that take turns on a device. The child runs this program anew. */
#include "tests/cuda/driver/check.h"
#include "tests/cuda/driver/own_kernels.h"
#include "tests/limit.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child, and a socket to it. */
struct child {
	pid_t pid;
	int socket;
};

static struct child start(const char *role)
{
	int pair[2];
	char fd[16];
	struct child child;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	snprintf(fd, sizeof fd, "%d", pair[1]);
	child.socket = pair[0];
	child.pid = fork();
	if (child.pid == 0) {
		close(pair[0]);
		execl("/proc/self/exe", "test_fake_processes", role, fd, NULL);
		_exit(1);
	}
	close(pair[1]);
	return child;
}

/* By a descriptor beside the bytes, unless it is -1. */
static void tell(int to, const void *data, size_t bytes, int fd)
{
	char control[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec part = {(void *)(uintptr_t)data, bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd >= 0) {
		message.msg_control = control;
		message.msg_controllen = sizeof control;
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		*c = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	assert_int_equal(sendmsg(to, &message, 0), bytes);
}

static int hear(int from, void *data, size_t bytes)
{
	int fd = -1;
	char control[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec part = {data, bytes};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof control};

	assert_int_equal(recvmsg(from, &message, 0), bytes);
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	if (c)
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
	return fd;
}

static void tell_word(int to, uint32_t word)
{
	tell(to, &word, sizeof word, -1);
}

static uint32_t hear_word(int from)
{
	uint32_t word;

	hear(from, &word, sizeof word);
	return word;
}

static void end_well(struct child child)
{
	int status;

	assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
	assert_int_equal(status, 0);
	close(child.socket);
}

/* On device 1, opens what it is told of, which lies on device 0; writes its first and reads its
 * second word; ends when told. */
static void open_handles(int parent)
{
	CUipcMemHandle handle;
	CUdeviceptr p, again;
	uint32_t word = 11;
	int ordinal;

	use_gpu(1);
	for (;;) {
		hear(parent, &handle, sizeof handle);
		CUresult error =
			cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
		tell_word(parent, error);
		if (error != CUDA_SUCCESS)
			return;
		ok(cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		assert_true(p == again);
		ok(cuIpcCloseMemHandle(p));
		ok(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
		assert_int_equal(ordinal, 0);
		ok(cuMemcpyAsync(p, address(&word), 4, NULL));
		struct fake_fill_args fill = {(uint32_t *)(uintptr_t)p + 1, 1, 1};
		launch("fake_fill", 1, &fill, NULL);
		tell_word(parent, read_word(p + 4, NULL));
		ok(cuIpcCloseMemHandle(p));
		fails(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
	}
}

static void memory_by_handle(void **state)
{
	struct child child = start("open");
	CUdeviceptr before, p;
	CUipcMemHandle handle;
	uint32_t word = 22;

	use_gpu(0);
	before = device_memory(700);
	for (int i = 0; i < 2; i++) {
		p = device_memory(5000); /* the second time at the same address */
		ok(cuMemcpyAsync(p + 4, address(&word), 4, NULL));
		ok(cuIpcGetMemHandle(&handle, p + 40)); /* of all of it */
		fails(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		      CUDA_ERROR_INVALID_CONTEXT);
		tell(child.socket, &handle, sizeof handle, -1);
		assert_int_equal(hear_word(child.socket), CUDA_SUCCESS);
		assert_int_equal(hear_word(child.socket), 23);
		assert_int_equal(read_word(p, NULL), 11);
		ok(cuMemFree_v2(p));
	}
	tell(child.socket, &handle, sizeof handle, -1); /* stale */
	assert_int_equal(hear_word(child.socket), CUDA_ERROR_INVALID_VALUE);
	end_well(child);
	ok(cuMemFree_v2(before));
}

/* Gives a handle away and waits to be killed. */
static void export_handle(int parent)
{
	CUipcMemHandle handle;

	use_gpu(0);
	ok(cuIpcGetMemHandle(&handle, device_memory(64)));
	tell(parent, &handle, sizeof handle, -1);
	hear_word(parent);
}

static void memory_of_the_dead(void **state)
{
	struct child child = start("export");
	CUipcMemHandle handle;
	CUdeviceptr p;
	int status;

	use_gpu(0);
	hear(child.socket, &handle, sizeof handle);
	ok(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	kill(child.pid, SIGKILL);
	assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
	ok(cuMemsetD8Async(p, 1, 64, NULL)); /* the mapping stays */
	ok(cuStreamSynchronize(NULL));
	ok(cuIpcCloseMemHandle(p));
	fails(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
	      CUDA_ERROR_MAP_FAILED);
	close(child.socket);
}

#define PIECE ((size_t)2 << 20)

static CUdeviceptr map_piece(CUmemGenericAllocationHandle piece, int gpu)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, gpu},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr p;

	ok(cuMemAddressReserve(&p, 2 * PIECE, 0, 0, 0));
	ok(cuMemMap(p, PIECE, 0, piece, 0));
	fails(cuMemMap(p, PIECE, 0, piece, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemRelease(piece)); /* it stays as long as it is mapped */
	ok(cuMemSetAccess(p, PIECE, &access, 1));
	return p;
}

static void unmap_piece(CUdeviceptr p)
{
	fails(cuMemAddressFree(p, 2 * PIECE), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemUnmap(p, PIECE));
	fails(cuMemUnmap(p, PIECE), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemAddressFree(p, 2 * PIECE));
}

/* No two pieces at one address, and none outside of a reservation. */
static void mappings_do_not_overlap(void **state)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle one, two;
	CUdeviceptr p;

	use_gpu(0);
	ok(cuMemCreate(&one, PIECE, &prop, 0));
	ok(cuMemCreate(&two, 2 * PIECE, &prop, 0));
	ok(cuMemAddressReserve(&p, 2 * PIECE, 0, 0, 0));
	fails(cuMemMap(p + PIECE, 2 * PIECE, 0, two, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemMap(p, 2 * PIECE, 0, two, 0));
	fails(cuMemMap(p + PIECE, PIECE, 0, one, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemUnmap(p, 2 * PIECE));
	ok(cuMemMap(p + PIECE, PIECE, 0, one, 0));
	fails(cuMemMap(p, 2 * PIECE, 0, two, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemUnmap(p + PIECE, PIECE));
	ok(cuMemRelease(one));
	ok(cuMemRelease(two));
	ok(cuMemAddressFree(p, 2 * PIECE));
}

static void import_piece(int parent)
{
	CUmemGenericAllocationHandle piece;
	uint32_t word;
	int fd;

	use_gpu(1);
	fd = hear(parent, &word, sizeof word);
	ok(cuMemImportFromShareableHandle(&piece, (void *)(intptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	CUdeviceptr p = map_piece(piece, 1);
	ok(cuMemcpyAsync(p + 4, p, 4, NULL));
	ok(cuStreamSynchronize(NULL));
	unmap_piece(p);
	fails(cuMemImportFromShareableHandle(&piece, (void *)(intptr_t)parent,
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
	      CUDA_ERROR_INVALID_VALUE);
	tell_word(parent, 0);
}

static void memory_by_descriptor(void **state)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes =
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	struct child child = start("import");
	CUmemGenericAllocationHandle piece;
	size_t granularity, left, left_then, total;
	uint32_t word = 33;
	int fd;

	use_gpu(0);
	ok(cuMemGetInfo_v2(&left, &total));
	ok(cuMemGetAllocationGranularity(&granularity, &prop, 0));
	assert_int_equal(granularity, PIECE);
	fails(cuMemCreate(&piece, PIECE + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemCreate(&piece, PIECE, &prop, 0));
	ok(cuMemExportToShareableHandle(&fd, piece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CUdeviceptr p = map_piece(piece, 0);
	ok(cuMemcpyAsync(p, address(&word), 4, NULL));
	tell(child.socket, &word, sizeof word, fd);
	close(fd);
	hear_word(child.socket);
	assert_int_equal(read_word(p + 4, NULL), 33);
	ok(cuMemGetInfo_v2(&left_then, &total));
	assert_int_equal(left - left_then, PIECE);
	unmap_piece(p);
	ok(cuMemGetInfo_v2(&left_then, &total));
	assert_int_equal(left, left_then);
	end_well(child);
}

/* A kernel on the device on which the parent's kernel waits. */
static void run_kernel(int parent)
{
	use_gpu(0);
	struct fake_fill_args fill = {pinned_memory(4), 1, 1};
	launch("fake_fill", 1, &fill, NULL);
	CUresult state = CUDA_SUCCESS;
	for (int i = 0; i < 2000 && (state = cuStreamQuery(NULL)) != CUDA_SUCCESS; i++)
		sched_yield();
	tell_word(parent, state);
	ok(cuStreamSynchronize(NULL));
	tell_word(parent, *fill.to);
}

static void kernels_take_turns(void **state)
{
	CUdeviceptr word;

	use_gpu(0);
	word = device_memory(4);
	ok(cuMemsetD8Async(word, 0, 4, NULL));
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING), t = new_stream(CU_STREAM_NON_BLOCKING);
	uint32_t *came = pinned_memory(4);
	struct fake_meet_args meet = {came, 2};
	launch("fake_meet", 1, &meet, s);
	while (__atomic_load_n(came, __ATOMIC_SEQ_CST) == 0)
		sched_yield();
	struct child child = start("kernel");
	assert_int_equal(hear_word(child.socket), CUDA_ERROR_NOT_READY);
	launch("fake_meet", 1, &meet, t); /* of this process: it may join */
	assert_int_equal(hear_word(child.socket), 1);
	end_well(child);
	ok(cuStreamSynchronize(s));
	ok(cuStreamSynchronize(t));
	ok(cuStreamDestroy_v2(s));
	ok(cuStreamDestroy_v2(t));
	ok(cuMemFreeHost(came));
	ok(cuMemFree_v2(word));
}

static const struct {
	const char *name;
	void (*run)(int parent);
} roles[] = {
	{"open", open_handles},
	{"export", export_handle},
	{"import", import_piece},
	{"kernel", run_kernel},
};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_by_handle),        cmocka_unit_test(memory_of_the_dead),
		cmocka_unit_test(mappings_do_not_overlap), cmocka_unit_test(memory_by_descriptor),
		cmocka_unit_test(kernels_take_turns),
	};
	char machine[] = "/tmp/test_fake_processes.XXXXXX";

	test_limit(120);
	if (argc == 3) {
		for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
			if (strcmp(argv[1], roles[i].name) == 0)
				roles[i].run(atoi(argv[2]));
		return 0;
	}
	close(mkstemp(machine));
	setenv("FAKE_CUDA_MACHINE", machine, 1);
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(machine);
	return failed;
}
