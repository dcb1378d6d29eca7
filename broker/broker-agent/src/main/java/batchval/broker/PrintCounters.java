package batchval.broker;

import com.sun.tools.attach.VirtualMachine;

import java.util.Arrays;
import java.util.Comparator;

import javax.management.InstanceNotFoundException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** Prints the counters of a broker on this machine: java -jar batchval-broker-agent.jar PID. */
public final class PrintCounters {
    private static final int NOT_THERE = 1;
    private static final int USAGE = 2;

    public static void main(String[] arguments) {
        if (arguments.length != 1) {
            System.err.println("usage: java -jar batchval-broker-agent.jar PID");
            System.exit(USAGE);
        }
        try {
            print(arguments[0]);
        } catch (InstanceNotFoundException stock) {
            fail("process " + arguments[0] + " has no agent: start the broker with"
                + " KAFKA_OPTS=-javaagent:batchval-broker-agent.jar=OPTIONS");
        } catch (Exception failure) {
            fail("cannot read the counters of process " + arguments[0] + ": "
                + (failure.getMessage() == null ? failure : failure.getMessage()));
        }
    }

    private static void fail(String reason) {
        System.err.println("batchval: " + reason);
        System.exit(NOT_THERE);
    }

    private static void print(String pid) throws Exception {
        VirtualMachine broker = VirtualMachine.attach(pid);
        String address;
        try {
            address = broker.startLocalManagementAgent();
        } finally {
            broker.detach();
        }
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(address))) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            ObjectName name = new ObjectName(Agent.MBEAN);
            MBeanAttributeInfo[] attributes = server.getMBeanInfo(name).getAttributes();
            Arrays.sort(attributes, Comparator.comparing(MBeanAttributeInfo::getName));
            for (MBeanAttributeInfo attribute : attributes)
                System.out.println(attribute.getName() + "="
                    + server.getAttribute(name, attribute.getName()));
        }
    }

    private PrintCounters() { }
}
