/* Pieces for other processes: by a descriptor, or by a fabric handle, which is bytes.
 *
 * The descriptor is a socket that holds the piece's file in a message. So it is good only as a copy
 * of the descriptor, sent from process to process: to open /proc/PID/fd/N fails here, and gives a
 * file of the device without the memory on a GPU. */
#include "tests/cuda/driver/piece.h"
#include "tests/cuda/driver/region.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x74757474696d656d)

unsigned piece_count;

/* What is in a CUmemFabricHandle. */
struct fabric {
	uint64_t magic, id;
	int32_t pid, fd;
};
_Static_assert(sizeof(struct fabric) <= sizeof(CUmemFabricHandle), "it fits in a handle");

static uint64_t new_id(void)
{
	static atomic_uint count;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec) * 31 +
	       (uint64_t)getpid() * 7919 + atomic_fetch_add(&count, 1);
}

int piece_file(const struct piece *piece)
{
	struct piece_trailer trailer = {MAGIC, new_id(), piece->bytes, piece->gpu};
	int fd = memfd_create("fake cuda piece", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)(piece->bytes + sizeof trailer)) != 0 ||
	    pwrite(fd, &trailer, sizeof trailer, (off_t)piece->bytes) != (ssize_t)sizeof trailer)
		abort();
	return fd;
}

static bool read_trailer(int fd, struct piece_trailer *trailer)
{
	struct stat file;

	return fstat(fd, &file) == 0 && file.st_size >= (off_t)sizeof *trailer &&
	       pread(fd, trailer, sizeof *trailer, file.st_size - (off_t)sizeof *trailer) ==
		       (ssize_t)sizeof *trailer &&
	       trailer->magic == MAGIC;
}

void piece_drop(struct piece *piece)
{
	if (--piece->holders > 0)
		return;
	if (piece->team)
		team_drop(piece);
	close(piece->fd);
	if (!piece->is_imported && !piece->team)
		memory_give(piece->gpu, piece->bytes);
	piece_count--;
	free(piece);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	TRY(driver_enter());
	if (handle == 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver_lock);
	piece_drop((struct piece *)(uintptr_t)handle);
	pthread_mutex_unlock(&driver_lock);
	return CUDA_SUCCESS;
}

union rights {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

/* A socket in which a message with the descriptor waits. */
static int box_up(int fd)
{
	union rights rights = {.bytes = {0}};
	char byte = 0;
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &rights,
				 .msg_controllen = sizeof rights};
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return -1;
	rights.header.cmsg_level = SOL_SOCKET;
	rights.header.cmsg_type = SCM_RIGHTS;
	rights.header.cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(&rights.header), &fd, sizeof fd);
	if (sendmsg(ends[0], &message, 0) != 1)
		abort();
	close(ends[0]);
	return ends[1];
}

/* The message stays: others may import the descriptor, too. */
static int look_into(int box)
{
	union rights rights;
	char byte;
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &rights,
				 .msg_controllen = sizeof rights};
	int fd;

	if (recvmsg(box, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1 ||
	    message.msg_controllen < CMSG_LEN(sizeof fd) || rights.header.cmsg_type != SCM_RIGHTS)
		return -1;
	memcpy(&fd, CMSG_DATA(&rights.header), sizeof fd);
	return fd;
}

uint64_t piece_id(const struct piece *piece)
{
	struct piece_trailer trailer;

	if (!read_trailer(piece->fd, &trailer))
		abort();
	return trailer.id;
}

static CUresult export_fabric(CUmemFabricHandle *out, const struct piece *piece)
{
	struct fabric fabric = {MAGIC, piece_id(piece), getpid(), piece->fd};
	memset(out, 0, sizeof *out);
	memcpy(out, &fabric, sizeof fabric);
	return CUDA_SUCCESS;
}

/* The descriptor is the caller's. */
CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType type, unsigned long long flags)
{
	struct piece *piece = (struct piece *)(uintptr_t)handle;

	TRY(driver_enter());
	if (out == NULL || piece == NULL || flags != 0 || !(piece->types & type) ||
	    (type & (type - 1)) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (type == CU_MEM_HANDLE_TYPE_FABRIC)
		return export_fabric(out, piece);
	int fd = box_up(piece->fd);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(out, &fd, sizeof fd);
	return CUDA_SUCCESS;
}

/* The file is the piece's own then. */
static CUresult import_file(struct piece **out, int fd, uint64_t id)
{
	struct piece_trailer trailer;

	if (!read_trailer(fd, &trailer) || (id != 0 && trailer.id != id))
		return CUDA_ERROR_INVALID_VALUE;
	if (trailer.gpu >= settings.gpus)
		return CUDA_ERROR_INVALID_DEVICE;
	struct piece *piece = must_alloc(sizeof *piece);
	*piece = (struct piece){.fd = fd,
				.gpu = trailer.gpu,
				.bytes = trailer.bytes,
				.is_imported = true,
				.holders = 1};
	if (piece->gpu < 0)
		team_attach(piece);
	pthread_mutex_lock(&driver_lock);
	piece_count++;
	pthread_mutex_unlock(&driver_lock);
	*out = piece;
	return CUDA_SUCCESS;
}

static int open_fabric(const CUmemFabricHandle *in, uint64_t *id)
{
	struct fabric fabric;
	char path[64];

	memcpy(&fabric, in, sizeof fabric);
	if (fabric.magic != MAGIC)
		return -1;
	*id = fabric.id;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)fabric.pid, (int)fabric.fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* in is the descriptor itself, which stays the caller's, or points to a fabric handle. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *in,
					CUmemAllocationHandleType type)
{
	struct piece *piece = NULL;
	uint64_t id = 0;
	int fd;

	TRY(driver_enter());
	if (handle == NULL || !settings.has_pieces)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(fault_here(FAULT_IPC));
	if (type == CU_MEM_HANDLE_TYPE_FABRIC && settings.has_fabric)
		fd = open_fabric(in, &id);
	else if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && settings.has_fds)
		fd = look_into((int)(intptr_t)in);
	else
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult error = fd < 0 ? CUDA_ERROR_INVALID_VALUE : import_file(&piece, fd, id);
	if (error != CUDA_SUCCESS) {
		if (fd >= 0)
			close(fd);
		return error;
	}
	piece->types = type;
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)piece;
	return CUDA_SUCCESS;
}

/* For tests: how many pieces this process holds or maps. */
__attribute__((visibility("default"))) unsigned fake_cuda_pieces(void);
unsigned fake_cuda_pieces(void)
{
	pthread_mutex_lock(&driver_lock);
	unsigned n = piece_count;
	pthread_mutex_unlock(&driver_lock);
	return n;
}
