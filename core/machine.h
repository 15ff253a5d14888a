/* This machine, as its small files tell it. */
#ifndef CORE_MACHINE_H
#define CORE_MACHINE_H

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is in such a file, as far as there is room. False: nothing, or there is no such file. */
bool machine_text(const char *path, char *text, size_t text_bytes);

/* The kernel's name for this run of it; "" where it tells none. SYSTEM: no descriptor is left. */
#define MACHINE_BOOT_BYTES 40
tutti_status machine_boot(char id[MACHINE_BOOT_BYTES]);
/* The number of this process's namespace of a kind ("net", "pid"), or 0 if unknown. */
uint64_t machine_namespace(const char *kind);

#endif
