"""The contenders: Tutti and every peer that is installed, with the settings each is known to be fast with."""
import dataclasses
import os
import re
import shutil
import subprocess

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
               "all_to_all", "sendrecv", "barrier")
OVER = ("shm", "tcp")
# Large blocks stay on the heap instead of being mapped and faulted in for every call.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
# What a library has no call for, so that no package brings the program.
LACKING = {("Gloo", "reduce_scatter"): "it has only an older class for one pair of buffers"}
# What would make a contender another one than it says: settings of libraries and transports, a batch system's and a
# launcher's words about a job that is not this one, what changes malloc or puts another library before it, threads' places.
FOREIGN = ("TUTTI_", "TUTTIRUN_", "OMPI_", "OPAL_", "PRTE_", "PMI", "MPIR_", "MPICH_", "MPIEXEC_", "MPIO_", "HYDRA_", "I_MPI_",
           "UCX_", "UCC_", "UCS_", "FI_", "PSM", "HCOLL_", "GLOO_", "NCCL_", "SLURM", "SRUN_", "SBATCH_", "PBS_", "LSB_", "LSF_",
           "FLUX_", "COBALT_", "TORCHELASTIC_", "TF_CONFIG", "MALLOC_", "GLIBC_TUNABLES", "JEMALLOC_", "TCMALLOC_", "LD_PRELOAD",
           "LD_AUDIT", "LD_PROFILE", "LD_BIND_", "OMP_", "GOMP_", "KMP_")
RANK_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "ROLE_RANK", "MASTER_ADDR",
              "MASTER_PORT")


@dataclasses.dataclass
class Contender:
    """A library with settings: how its programs are started."""
    name: str
    library: str
    build: str
    launcher: list = ()          # "{ranks}" stands for their number
    prefix: str = ""             # of its programs' names
    env: dict = dataclasses.field(default_factory=dict)
    options: list = ()           # of the program
    version: str = ""

    @property
    def is_ours(self):
        return self.library == "Tutti"

    def program(self, collective):
        return os.path.join(self.build, "perf", f"{self.prefix}{collective}_perf")

    def command(self, collective, ranks, wrap=()):
        """wrap: words before the program, such as chrt's."""
        launcher = [word.format(ranks=ranks) for word in self.launcher]
        options = [word.format(ranks=ranks) for word in self.options]
        return launcher + list(wrap) + [self.program(collective)] + options

    def environment(self, base):
        """base and its settings. A folder that was copied has programs that name the library of the folder they were
        built in: Tutti's are told to take their own."""
        env = dict(base, **self.env)
        if self.is_ours:
            others = [base["LD_LIBRARY_PATH"]] if base.get("LD_LIBRARY_PATH") else []
            env["LD_LIBRARY_PATH"] = os.pathsep.join([os.path.abspath(self.build)] + others)
        return env

    def settings(self):
        """For people: what is set apart from the number of ranks, without paths."""
        words = [f"{name}={value}" for name, value in self.env.items()]
        skip = ("-n", "--ranks", "{ranks}", "--")
        words += [word for word in [*self.launcher[1:], *self.options] if word not in skip]
        return " ".join(words) or "none"


def clean_environment(say):
    """Says what was left out of it."""
    dropped = sorted(name for name in os.environ if name.startswith(FOREIGN) or name in RANK_NAMES)
    if dropped:
        say(f"Left out of the environment: {', '.join(dropped)}.")
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    return dict(env, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def output_of(*command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def launcher_of(library, names):
    """The first of the names that is this library's mpirun."""
    for name in names:
        path = shutil.which(name)
        if path and library in output_of(path, "--version"):
            return path
    return None


def tutti(build, over, name="Tutti", zero_copy=False):
    env = {"TUTTI_TRANSPORTS": "tcp", "TUTTI_WINDOW": "0"} if over == "tcp" else {}
    return Contender(f"{name}, zero copy" if zero_copy else name, "Tutti", build=build, env=env,
                     launcher=[os.path.join(build, "launch", "tuttirun"), "-n", "{ranks}", "--"],
                     options=["--zero-copy"] if zero_copy else [])


def open_mpi(build, over):
    mpirun = launcher_of("Open MPI", ("mpirun.openmpi", "mpirun"))
    if not mpirun:
        return [], "Open MPI is not here: Debian's openmpi-bin and libopenmpi-dev bring it."
    info = output_of(shutil.which("ompi_info") or "ompi_info", "--parsable")
    version = re.search(r"mpirun \(Open MPI\) (\S+)", output_of(mpirun, "--version"))
    version = "Open MPI " + (version[1] if version else "of an unknown version")
    base = [mpirun, "-n", "{ranks}", "--oversubscribe", "--mca", "pml"]
    malloc = [word for name, value in MALLOC.items() for word in ("-x", f"{name}={value}")]

    def variant(name, words):
        return Contender(name, "Open MPI", build=build, prefix="openmpi_", version=version,
                         launcher=base + words)

    if over == "tcp":
        stock = ["ob1", "--mca", "btl", "self,tcp"]
        found = [variant("Open MPI", stock), variant("Open MPI, malloc", stock + malloc)]
        tls = "tcp,self"
    else:
        stock = ["ob1", "--mca", "btl", "self,vader"]
        no_cma = stock + ["--mca", "btl_vader_single_copy_mechanism", "none"]
        found = [variant("Open MPI", stock), variant("Open MPI, malloc", stock + malloc),
                 variant("Open MPI, no CMA", no_cma), variant("Open MPI, no CMA, malloc", no_cma + malloc)]
        tls = "sm,self"
    if "mca:pml:ucx" in info:
        found.append(variant("Open MPI, UCX", ["ucx", "--mca", "pml_ucx_tls", "any", "--mca",
                                               "pml_ucx_devices", "any", "-x", f"UCX_TLS={tls}"]))
    return found, None


def mpich(build, over):
    mpirun = launcher_of("HYDRA", ("mpirun.mpich", "mpiexec.mpich", "mpirun", "mpiexec.hydra"))
    if not mpirun:
        return [], "MPICH is not here: Debian's mpich and libmpich-dev bring it."
    about = output_of(mpirun, "--version")
    version = re.search(r"Version:\s+(\S+)", about)
    device = re.search(r"--with-device=([\w:]+)", about)
    device = device[1] if device else "ch4"
    # Without shared memory everything goes through the device's network library, and that over tcp.
    network = {"FI_PROVIDER": "tcp"} if "ofi" in device else {"UCX_TLS": "tcp,self"}
    env = dict(network, MPIR_CVAR_NOLOCAL="1") if over == "tcp" else {}
    version = f"MPICH {version[1] if version else 'of an unknown version'} ({device})"
    return [Contender("MPICH", "MPICH", build=build, prefix="mpich_", version=version, env=env,
                      launcher=[mpirun, "-n", "{ranks}"])], None


def gloo(build, over):
    if over != "tcp":
        return [], None
    package = output_of("dpkg-query", "-W", "-f", "${Version}", "libgloo-dev").strip()
    return [Contender("Gloo", "Gloo", build=build, prefix="gloo_", version=f"Gloo {package}".strip(),
                      options=["--ranks", "{ranks}"])], None


# library: (its contenders, its programs' prefix, Debian's packages)
PEERS = {"Open MPI": (open_mpi, "openmpi_", "openmpi-bin and libopenmpi-dev"), "MPICH": (mpich, "mpich_", "mpich and libmpich-dev"),
         "Gloo": (gloo, "gloo_", "libgloo-dev")}


def all_contenders(build, over):
    """Ours first. Returns (contenders, {peer that is not here: a message})."""
    found = [tutti(build, over)]
    if over == "shm":
        found.append(tutti(build, over, zero_copy=True))
    missing = {}
    for library, (peer, _, _) in PEERS.items():
        here, why_not = peer(build, over)
        found += here
        if why_not:
            missing[library] = why_not
    return found, missing


def without_program(contenders, collective):
    """(those that can be started, messages on libraries whose program was not built)."""
    ready = [c for c in contenders if os.access(c.program(collective), os.X_OK)]
    lacking = {c.library for c in contenders if c not in ready}
    return ready, [f"{library} is left out of {collective}: {why_no_program(library, collective)}." for library in sorted(lacking)]


def why_no_program(library, collective):
    """Without a full stop."""
    if (library, collective) in LACKING:
        return LACKING[library, collective]
    if library not in PEERS:
        return f"{collective}_perf was not built; cmake --build --preset release does"
    _, prefix, packages = PEERS[library]
    return f"{prefix}{collective}_perf was not built; CMake builds it where Debian's {packages} are installed"
