package batchval.oracle;

/** Where an append comes from: AppendOrigin, an object of Scala before 3.5. */
public enum Origin {
    CLIENT("Client"),
    COORDINATOR("Coordinator"),
    REPLICATION("Replication"),
    RAFT_LEADER("RaftLeader");

    private final String inScala;

    Origin(String inScala) {
        this.inScala = inScala;
    }

    /** Return Kafka's own. */
    Object kafkas() {
        Class<?> java = Reflect.find("org.apache.kafka.storage.internals.log.AppendOrigin");
        return java != null ? Reflect.callStatic(java, "valueOf", name())
            : Reflect.module("kafka.log.AppendOrigin$" + inScala);
    }
}
